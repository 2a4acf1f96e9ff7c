//! Writer of checkpoints that works while training continues.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kolo_durable::{create_folder, create_folders};
use parking_lot::Mutex;

use crate::background::Background;
use crate::error::Error;
use crate::guard::Guard;
use crate::outline::Outline;
use crate::snapshot::Snapshot;
use crate::source::{FiniteSource, Source};
use crate::warning::{Warning, Warnings};
use crate::{folder, write};

/// Thread that writes checkpoints and keeps the last few.
///
/// It writes one checkpoint at a time; a newer one replaces one that still waits ([`Writer::put`]). A failed
/// write, for example on a full disk, is a warning ([`Writer::take_warnings`]) with path and cause; the next
/// checkpoint tries again. Memory: the checkpoint being written, and the waiting one.
///
/// Dropping the writer waits for its work, too; [`Writer::finish`] also returns the result.
pub struct Writer {
    background: Background<Snapshot>,
    target: Arc<Target>,
}

/// Folder in which a writer keeps its checkpoints.
struct Target {
    folder: PathBuf,
    guard: Guard,
    keep: usize,
    /// Held while a checkpoint is written: one at a time.
    writing: Mutex<()>,
    warnings: Warnings,
}

impl Target {
    /// Writes a checkpoint, and removes older ones.
    fn write(&self, outline: &Outline, source: &mut dyn Source) -> Result<(), Error> {
        let _writing = self.writing.lock();
        write::write(&self.folder, outline, source, &self.guard)?;
        self.prune(outline.position.step);
        Ok(())
    }

    /// Removes checkpoints older than that of `step`, except for the last few.
    fn prune(&self, step: u64) {
        let Target { folder, guard, keep, .. } = self;
        if let Err(error) = guard.check(folder).and_then(|()| folder::prune(folder, step, *keep)) {
            self.warnings.add(Warning::NotRemoved(error));
        }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl Writer {
    /// Creates a writer to a folder, which is created if missing. No other process may write there. Once a
    /// checkpoint is durable, older ones are removed, so that `keep` good ones remain.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be created, if `keep` is 0, or if the system cannot create a
    /// thread.
    pub fn new(folder: &Path, keep: usize) -> Result<Self, Error> {
        create_folders(folder).map_err(|e| Error::file(folder, e))?;
        Self::guarded(folder, keep, Guard::none())
    }

    /// Same as [`Writer::new`], for a folder that others may take: checks `guard` before each change, and
    /// changes nothing once it refuses. Parent folders are not created, because they may be unavailable for a
    /// while.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Writer::new`], and [`Error::NotAllowed`].
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
        let (writing, warnings) = (Mutex::new(()), Warnings::default());
        let target =
            Arc::new(Target { folder: folder.into(), guard, keep, writing, warnings: warnings.clone() });
        let own = target.clone();
        let work = move |snapshot: &Snapshot| {
            let mut source = snapshot;
            own.write(&snapshot.outline, &mut source)
        };
        let background = Background::start("kolo-checkpoint", warnings, work);
        let background =
            background.map_err(|e| Error::file(folder, format!("cannot start a thread to write it: {e}")))?;
        Ok(Writer { background, target })
    }

    /// Hands a checkpoint to the thread. Cannot fail, and returns at once, unless one of
    /// [`Writer::put_to_stay`] still waits.
    pub fn put(&self, snapshot: Snapshot) {
        self.background.put(snapshot, false);
    }

    /// Same as [`Writer::put`], for a checkpoint that somebody counts on: the next one waits until this one
    /// is being written, instead of replacing it.
    pub fn put_to_stay(&self, snapshot: Snapshot) {
        self.background.put(snapshot, true);
    }

    /// Writes a checkpoint with the values of a source, and returns when it is durable. Waits for one that
    /// the thread is writing.
    ///
    /// # Errors
    ///
    /// Same as [`Outline::write`]; or [`Error::NotAllowed`].
    pub fn write(&self, outline: &Outline, source: &mut dyn Source) -> Result<(), Error> {
        self.target.write(outline, &mut FiniteSource { outline, source })
    }

    /// Removes checkpoints older than that of `step`, which somebody has read, so that as many remain as this
    /// writer keeps: the next one may need their room. A failure is a warning.
    pub fn prune(&self, step: u64) {
        let _writing = self.target.writing.lock();
        self.target.prune(step);
    }

    /// Returns the warnings since the last call: checkpoints that could not be written, and old ones that
    /// could not be removed. They were also logged, or printed to stderr if logging is off.
    pub fn take_warnings(&self) -> Vec<Warning> {
        self.target.warnings.take()
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    ///
    /// Returns an error with the file's name if two attempts to write the last checkpoint failed.
    pub fn finish(self) -> Result<(), Error> {
        self.finish_within(Duration::ZERO)
    }

    /// Same as [`Writer::finish`], but retries the last checkpoint for as long as `patience`: meanwhile
    /// someone may make room on a full disk, or bring a folder back.
    ///
    /// # Errors
    ///
    /// Returns an error with the file's name if the last checkpoint could not be written in that time.
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

    /// Creates a guard that refuses once the flag is set.
    fn guard(name: &str, refuses: &Arc<AtomicBool>) -> Guard {
        let refuses = Arc::clone(refuses);
        Guard::new(name, move || match refuses.load(Ordering::Relaxed) {
            true => Err("another writer uses this folder".into()),
            false => Ok(()),
        })
    }

    #[test]
    fn a_refused_writer_changes_nothing() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("checkpoints");
        let refuses = Arc::new(AtomicBool::new(false));
        let writer = Writer::guarded(&folder, 1, guard("a", &refuses)).unwrap();
        writer.put(Snapshot::for_tests(1));
        writer.finish().unwrap();
        let writer = Writer::guarded(&folder, 1, guard("a", &refuses)).unwrap();
        // Draft of the current writer.
        let theirs = folder.join(".step-00000002.b.part");
        fs::create_dir(&theirs).unwrap();
        refuses.store(true, Ordering::Relaxed);
        writer.put(Snapshot::for_tests(2));
        let error = writer.finish().unwrap_err().to_string();
        assert!(error.contains("another writer uses this folder"), "{error}");
        let refused = Writer::guarded(&folder, 1, guard("a", &refuses));
        assert!(matches!(refused, Err(Error::NotAllowed { .. })));
        let steps: Vec<u64> = list(&folder).unwrap().into_iter().map(|(step, _)| step).collect();
        assert!(steps == [1] && theirs.exists(), "{steps:?}");
    }

    /// A run continues from the checkpoint of step 3, because that of step 4 is damaged.
    #[test]
    fn a_writer_makes_room_before_its_first_checkpoint() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path();
        (1..=4).for_each(|step| drop(Snapshot::for_tests(step).write(folder).unwrap()));
        let steps = || list(folder).unwrap().into_iter().map(|(step, _)| step).collect::<Vec<u64>>();
        Writer::new(folder, 3).unwrap().prune(3);
        assert_eq!(steps(), [1, 2, 3, 4]);
        let writer = Writer::new(folder, 2).unwrap();
        writer.prune(3);
        assert_eq!((steps(), writer.take_warnings().len()), (vec![2, 3, 4], 0));
    }

    #[test]
    fn the_parent_folder_is_not_created() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("run/checkpoints");
        assert!(Writer::guarded(&folder, 1, Guard::none()).is_err());
        assert!(!place.path().join("run").exists());
    }
}
