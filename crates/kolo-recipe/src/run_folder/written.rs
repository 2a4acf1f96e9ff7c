//! The right to write a run folder, and writes of its files.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use kolo_claim::{Candidate, DRAFT};
use kolo_durable::sync_folder;
use kolo_run_folder::SUMMARY;

use super::folder::{CONFIG, RunFolder};
use crate::error::Error;
use crate::recipe::Recipe;
use crate::run_claim::{RunClaim, from_claim, tell_waiting};

impl RunFolder {
    /// Waits until no process writes to the folder any more, as far as can be known.
    ///
    /// # Errors
    ///
    /// Another process writes it ([`Error::NotTheWriter`]), and `take_over` is false.
    pub fn wait_until_free(&self, take_over: bool) -> Result<(), Error> {
        let candidate = Candidate { take_over, ..Candidate::alone() };
        kolo_claim::wait_until_free(&self.path, &candidate, tell_waiting).map_err(from_claim)
    }

    /// Returns true if another process writes the folder, or may write it.
    pub fn is_written(&self) -> bool {
        kolo_claim::is_written(&self.path).unwrap_or(false)
    }

    /// Returns the same folder with the right to write it.
    pub fn claimed(&self, candidate: Candidate) -> Self {
        let claim = RunClaim::new(&self.path, candidate);
        RunFolder { claim: Some(Arc::new(claim)), ..self.clone() }
    }

    /// Returns the right to write the folder; `None` without [`RunFolder::claimed`].
    pub fn run_claim(&self) -> Option<&Arc<RunClaim>> {
        self.claim.as_ref()
    }

    /// Returns an error if another process writes the folder, or if the folder is gone; does not wait for it.
    pub fn check_claim(&self) -> Result<(), Error> {
        self.claim.as_ref().map_or(Ok(()), |claim| claim.check())
    }

    /// Returns an error if another process writes the folder, or if the folder is gone: it may be on a disk
    /// that is not mounted, and its files would seem to be empty.
    pub fn check(&self) -> Result<(), Error> {
        self.check_claim()?;
        match self.path.is_dir() {
            true => Ok(()),
            false => Err(Error::FolderGone { path: self.path.clone() }),
        }
    }

    /// Prepares the folder for a run that has steps left: it becomes as long as `config` says, if that is
    /// longer, and is no longer complete. Returns sentences about what becomes of its learning rate.
    ///
    /// # Errors
    ///
    /// The folder cannot be written.
    pub fn extend(&self, config: &Recipe) -> Result<Vec<String>, Error> {
        let before = self.is_run().then(|| self.config()).transpose()?;
        let words = before.map_or(Vec::new(), |before| longer(&before, config));
        if !words.is_empty() {
            self.replace(CONFIG, config.to_toml()?.as_bytes())?;
        }
        let summary = self.path.join(SUMMARY);
        match fs::remove_file(&summary) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(words),
            Err(e) => Err(Error::file(&summary, e)),
            Ok(()) => sync_folder(&self.path).map(|()| words).map_err(|e| Error::file(&self.path, e)),
        }
    }

    /// Writes a file as a whole and durably, unless another process writes the folder.
    pub fn write(&self, path: &Path, data: &[u8]) -> Result<(), Error> {
        self.check_claim()?;
        kolo_durable::replace(path, data).map_err(|e| Error::file(path, e))
    }

    /// Writes a file as [`RunFolder::write`] does, through a draft of its own: other jobs that begin in the
    /// folder may write the same file.
    pub(super) fn replace(&self, name: &str, data: &[u8]) -> Result<(), Error> {
        self.check_claim()?;
        let (draft, path) = (format!("{DRAFT}{}", Candidate::new_id()), self.path.join(name));
        kolo_durable::replace_through(&self.path.join(draft), &path, data).map_err(|e| Error::file(&path, e))
    }

    /// Appends all of `data` or nothing to a file, which begins with `header`, unless another process writes
    /// the folder. [`RunFolder::sync_lines`] makes the bytes durable.
    pub fn append(&self, path: &Path, header: &[u8], data: &[u8]) -> Result<(), Error> {
        self.check_claim()?;
        kolo_durable::append(path, header, data).map_err(|e| Error::file(path, e))?;
        self.lines.unsynced.lock().insert(path.to_owned());
        Ok(())
    }

    /// Makes all appended lines durable: before a checkpoint seals the steps so far, and before the summary
    /// seals all of them. This may take as long as the disk takes.
    pub fn sync_lines(&self) -> Result<(), Error> {
        let _alone = self.lines.syncing.lock();
        let files = std::mem::take(&mut *self.lines.unsynced.lock());
        let mut first = Ok(());
        for path in files {
            match kolo_durable::sync_file(&path) {
                // A missing file has nothing to lose.
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    first = first.and(Err(Error::file(&path, error)));
                    self.lines.unsynced.lock().insert(path);
                }
                _ => {}
            }
        }
        first
    }
}

/// Describes what becomes of the learning rate of a run that is longer than `before`; nothing if it is not.
fn longer(before: &Recipe, config: &Recipe) -> Vec<String> {
    let steps = before.steps.zip(config.steps).filter(|(before, steps)| steps > before);
    let steps = steps.map(|(before, steps)| {
        format!("{steps} steps in place of {before}: the learning rate follows the same schedule")
    });
    let has_more = config.epochs > before.epochs;
    let epochs = has_more.then(|| config.rate.describe_longer(before.epochs, config.epochs));
    steps.into_iter().chain(epochs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(result: Result<impl std::fmt::Debug, Error>) -> bool {
        matches!(result, Err(Error::FolderGone { .. }))
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_no_draft() {
        let place = tempfile::tempdir().unwrap();
        // A file cannot replace a folder that is not empty.
        let in_the_way = place.path().join("a");
        fs::create_dir_all(in_the_way.join("b")).unwrap();
        RunFolder::at(place.path().into()).write(&in_the_way, b"x").unwrap_err();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "what was there before");
    }

    #[test]
    fn who_is_fenced_off_changes_no_file() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(place.path().to_owned());
        let first = folder.claimed(Candidate::alone());
        let file = place.path().join("a");
        first.write(&file, b"first").unwrap();
        let second = folder.claimed(Candidate::alone());
        second.check().unwrap();
        let error = first.write(&file, b"late").unwrap_err();
        assert!(matches!(error, Error::NotTheWriter(_)) && first.check().is_err(), "{error}");
        let words = error.to_string();
        assert!(words.contains(&format!("process {}", std::process::id())), "{words}");
        second.write(&file, b"second").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "second");
    }

    #[test]
    fn a_folder_that_was_claimed_while_it_was_away_is_claimed_when_it_is_back() {
        let place = tempfile::tempdir().unwrap();
        let (path, away) = (place.path().join("run"), place.path().join("away"));
        fs::create_dir(&away).unwrap();
        let folder = RunFolder::at(path.clone()).claimed(Candidate::alone());
        assert!(gone(folder.check()) && gone(folder.write(&path.join("a"), b"x")) && !path.exists());
        fs::rename(&away, &path).unwrap();
        folder.write(&path.join("a"), b"x").unwrap();
    }
}
