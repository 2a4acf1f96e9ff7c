//! Writes checkpoints while training goes on.

use std::fs;
use std::path::Path;

use crate::background::Background;
use crate::error::Error;
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
        if keep == 0 {
            return Err(Error::KeepsNone);
        }
        fs::create_dir_all(folder).map_err(|e| Error::file(folder, e))?;
        folder::clean(folder);
        let (target, warnings) = (folder.to_path_buf(), Warnings::default());
        let own = warnings.clone();
        let work = move |snapshot: &Snapshot| {
            write::write(&target, snapshot)?;
            if let Err(error) = folder::prune(&target, snapshot.position.step, keep) {
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
        self.background.finish()
    }
}
