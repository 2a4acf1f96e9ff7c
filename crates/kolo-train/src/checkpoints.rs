//! The checkpoints of a run: when one is due, who writes it, which one to continue from.

use burn::module::Module;
use kolo_burn::Ddp;
use kolo_comm::Op;
use kolo_ddp::checkpoint::{self, Position, Reader, Writer};

use crate::config::TrainConfig;
use crate::error::Error;
use crate::progress::Progress;
use crate::run_folder::RunFolder;

/// Rank 0's side: takes copies between two steps, which a thread writes.
pub(crate) struct Checkpoints {
    folder: RunFolder,
    keep: usize,
    /// `None` as long as the folder cannot be written to.
    writer: Option<Writer>,
    /// Why the last one has not even come to the writer.
    lost: Option<Error>,
    every_epochs: usize,
    every_steps: Option<u64>,
}

impl Checkpoints {
    pub(crate) fn new(folder: &RunFolder, config: &TrainConfig) -> Self {
        let (every_epochs, every_steps) = (config.checkpoint_epochs, config.checkpoint_steps);
        let (folder, keep) = (folder.clone(), config.keep_checkpoints);
        Checkpoints { folder, keep, writer: None, lost: None, every_epochs, every_steps }
    }

    /// Makes ready for writing, if that has not been done.
    pub(crate) fn open(&mut self) -> Result<&Writer, Error> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => {
                self.folder.check()?;
                Writer::new(&self.folder.checkpoints(), self.keep)?
            }
        };
        Ok(self.writer.insert(writer))
    }

    /// Whether one is due now that an epoch is over.
    pub(crate) fn due_between_epochs(&self, position: &Position) -> bool {
        position.epoch.is_multiple_of(self.every_epochs) || self.due_within_epoch(position)
    }

    /// Whether one is due after this step.
    pub(crate) fn due_within_epoch(&self, position: &Position) -> bool {
        self.every_steps.is_some_and(|steps| position.step.is_multiple_of(steps))
    }

    /// Copies what a checkpoint holds, and leaves the rest to the thread.
    pub(crate) fn take<M: Module>(&mut self, ddp: &Ddp<M>, progress: &Progress) -> Result<(), Error> {
        let position = progress.noted();
        let snapshot = ddp.with_replica(|replica| checkpoint::snapshot(replica, &position))?;
        self.lost = self.open().map(|writer| writer.put(snapshot)).err();
        if let Some(error) = &self.lost {
            log::warn!(
                "checkpoint not written: {error}; training goes on, the next checkpoint is another try"
            );
        }
        Ok(())
    }

    /// Waits for the last one. Its failure is the run's: there is nothing to continue from.
    pub(crate) fn finish(self) -> Result<(), Error> {
        let written = self.writer.map_or(Ok(()), |writer| writer.finish().map_err(Error::from));
        self.lost.map_or(written, Err).map_err(|error| Error::CheckpointLost(Box::new(error)))
    }
}

/// Where the run was at the checkpoint of a step, from which others have continued; `None` if this worker
/// does not see it.
pub(crate) fn position(folder: &RunFolder, step: u64) -> Option<Position> {
    let reader = Reader::open(&checkpoint::path(&folder.checkpoints(), step)).ok()?;
    reader.position().ok()
}

/// Reads the newest checkpoint that is good on every rank. A collective.
pub(crate) fn resume<M: Module>(ddp: &mut Ddp<M>, folder: &RunFolder) -> Result<Position, Error> {
    let found = folder.newest_checkpoint()?;
    // Where nodes have disks of their own, one of them may be damaged.
    let mut step = [found.step as i64];
    ddp.group().all_reduce(&mut step, Op::Min)?;
    let path = checkpoint::path(&folder.checkpoints(), step[0].unsigned_abs());
    if ddp.rank().0 == 0 {
        for problem in &found.passed_over {
            log::warn!("{problem}; this run continues from {}", path.display());
        }
    }
    Ok(ddp.load(&path)?)
}
