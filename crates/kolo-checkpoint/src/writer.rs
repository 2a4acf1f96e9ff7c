//! Writes checkpoints while training goes on.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use kolo_durable::{create_folder, create_folders};

use crate::background::Background;
use crate::error::Error;
use crate::guard::Guard;
use crate::snapshot::Snapshot;
use crate::warning::{Warning, Warnings};
use crate::{folder, write};

/// A thread that writes checkpoints and keeps the last few.
///
/// One is written at a time; a newer one takes the place of one that still waits. One that cannot be written,
/// because the disk is full or the folder gone, is a warning ([`Writer::take_warnings`]) that names path and
/// cause, and the next one is another try. Memory: the checkpoint that is being written, the one that waits,
/// and the file that is under way.
///
/// Dropping it waits for what is under way or waits, too; [`Writer::finish`] also says whether that went
/// well.
pub struct Writer {
    background: Background<Snapshot>,
    warnings: Warnings,
}

impl Writer {
    /// A writer to a folder, which is made if it is not there. No other may write there meanwhile. When a
    /// checkpoint is durable, older ones are removed, so that `keep` good ones are left.
    ///
    /// # Errors
    ///
    /// The folder cannot be made, `keep` is 0, or the system gives no thread.
    pub fn new(folder: &Path, keep: usize) -> Result<Self, Error> {
        create_folders(folder).map_err(|e| Error::file(folder, e))?;
        Self::guarded(folder, keep, Guard::none())
    }

    /// The same where others may take the folder: asks `guard` before each change, and changes nothing once
    /// that refuses. The folder above is not made, because it may be one that is away for a while.
    ///
    /// # Errors
    ///
    /// As [`Writer::new`], and [`Error::NotAllowed`].
    pub fn guarded(folder: &Path, keep: usize, guard: Guard) -> Result<Self, Error> {
        if keep == 0 {
            return Err(Error::KeepsNone);
        }
        guard.check(folder)?;
        match create_folder(folder) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(Error::not_written(folder, &e)),
            _ => {}
        }
        folder::clean(folder);
        let (target, warnings) = (folder.to_path_buf(), Warnings::default());
        let own = warnings.clone();
        let work = move |snapshot: &Snapshot| {
            write::write(&target, snapshot, &guard)?;
            let step = snapshot.position.step;
            if let Err(error) = guard.check(&target).and_then(|()| folder::prune(&target, step, keep)) {
                own.add(Warning::NotRemoved(error));
            }
            Ok(())
        };
        let background = Background::start("kolo-checkpoint", warnings.clone(), work);
        let background =
            background.map_err(|e| Error::file(folder, format!("no thread to write it: {e}")))?;
        Ok(Writer { background, warnings })
    }

    /// Leaves a checkpoint to the thread. Returns at once and cannot fail.
    pub fn put(&self, snapshot: Snapshot) {
        self.background.put(snapshot);
    }

    /// What the user must know of the checkpoints so far, each once: those that could not be written, and old
    /// ones that could not be removed. The program's logger has heard of them, or stderr where there is none.
    pub fn take_warnings(&self) -> Vec<Warning> {
        self.warnings.take()
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    ///
    /// The last checkpoint could not be written, also not at a second try; names the file.
    pub fn finish(self) -> Result<(), Error> {
        self.finish_within(Duration::ZERO)
    }

    /// As [`Writer::finish`], with more tries of the last checkpoint for so long: somebody may make room on a
    /// full disk, or bring a folder back.
    ///
    /// # Errors
    ///
    /// The last checkpoint could not be written within that time; names the file.
    pub fn finish_within(self, patience: Duration) -> Result<(), Error> {
        self.background.finish(patience)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::list;

    /// A guard that refuses when the flag is up.
    fn guard(name: &str, refuses: &Arc<AtomicBool>) -> Guard {
        let refuses = Arc::clone(refuses);
        Guard::new(name, move || match refuses.load(Ordering::Relaxed) {
            true => Err("another one writes here".into()),
            false => Ok(()),
        })
    }

    #[test]
    fn one_that_may_not_write_changes_nothing() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("checkpoints");
        let refuses = Arc::new(AtomicBool::new(false));
        let writer = Writer::guarded(&folder, 1, guard("a", &refuses)).unwrap();
        writer.put(Snapshot::for_tests(1));
        writer.finish().unwrap();
        let writer = Writer::guarded(&folder, 1, guard("a", &refuses)).unwrap();
        // What the one that writes now has under way.
        let theirs = folder.join(".step-00000002.b.part");
        fs::create_dir(&theirs).unwrap();
        refuses.store(true, Ordering::Relaxed);
        writer.put(Snapshot::for_tests(2));
        let error = writer.finish().unwrap_err().to_string();
        assert!(error.contains("another one writes here"), "{error}");
        let refused = Writer::guarded(&folder, 1, guard("a", &refuses));
        assert!(matches!(refused, Err(Error::NotAllowed { .. })));
        let steps: Vec<u64> = list(&folder).unwrap().into_iter().map(|(step, _)| step).collect();
        assert!(steps == [1] && theirs.exists(), "{steps:?}");
    }

    #[test]
    fn the_folder_above_is_not_made() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("run/checkpoints");
        assert!(Writer::guarded(&folder, 1, Guard::none()).is_err());
        assert!(!place.path().join("run").exists());
    }
}
