//! Writes checkpoints while training goes on.

use std::fs;
use std::path::Path;

use crate::background::Background;
use crate::error::Error;
use crate::snapshot::Snapshot;
use crate::{folder, write};

/// A thread that writes checkpoints and keeps the last few.
///
/// One is written at a time; a newer one takes the place of one that still waits. One that cannot be written,
/// because the disk is full or the folder gone, is a warning that names path and cause, and the next one is
/// another try. Memory: the checkpoint that is being written, the one that waits, and the file that is under
/// way.
///
/// Dropping it waits for what is under way or waits, too; [`Writer::finish`] also says whether that went
/// well.
pub struct Writer {
    background: Background<Snapshot>,
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
        let target = folder.to_path_buf();
        let work = move |snapshot: &Snapshot| {
            write::write(&target, snapshot)?;
            if let Err(error) = folder::prune(&target, snapshot.position.step, keep) {
                log::warn!("an old checkpoint stays: {error}");
            }
            Ok(())
        };
        let background = Background::start("kolo-checkpoint", work);
        let background =
            background.map_err(|e| Error::file(folder, format!("no thread to write it: {e}")))?;
        Ok(Writer { background })
    }

    /// Leaves a checkpoint to the thread. Returns at once and cannot fail.
    pub fn put(&self, snapshot: Snapshot) {
        self.background.put(snapshot);
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
