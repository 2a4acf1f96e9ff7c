//! The checkpoints of a run: who writes them, which one to continue from.

use std::path::PathBuf;
use std::time::Instant;

use burn::module::Module;
use kolo_burn::Ddp;
use kolo_ddp::Error::NoCommonCheckpoint;
use kolo_ddp::checkpoint::{self, Guard, Position, Reader, Snapshot, Writer};

use crate::config::Recipe;
use crate::error::Error;
use crate::patience::patiently;
use crate::progress::Progress;
use crate::run_folder::RunFolder;
use crate::sampling::{SAMPLING, Sampling};
use crate::warn::Warnings;

/// Rank 0's side: takes copies between two steps, which threads write.
pub(crate) struct Checkpoints {
    last: Series,
    best: Series,
}

/// Checkpoints in one folder, of which the last few are kept.
struct Series {
    run: RunFolder,
    folder: PathBuf,
    keep: usize,
    /// Noted in each of them.
    sampling: Sampling,
    /// `None` as long as the folder cannot be written to.
    writer: Option<Writer>,
    /// The last one, where it has not even come to the writer.
    unwritten: Option<Snapshot>,
    /// That and other things that the user must know, and has been told.
    warnings: Warnings,
}

impl Checkpoints {
    pub(crate) fn new(run: &RunFolder, config: &Recipe, sampling: &Sampling) -> Self {
        let series = |folder, keep| Series {
            run: run.clone(),
            folder,
            keep,
            sampling: sampling.clone(),
            writer: None,
            unwritten: None,
            warnings: Warnings::default(),
        };
        Checkpoints { last: series(run.checkpoints(), config.keep_checkpoints), best: series(run.best(), 1) }
    }

    /// Makes ready for writing, if that has not been done.
    pub(crate) fn open(&mut self) -> Result<(), Error> {
        self.last.open().map(drop)
    }

    /// Copies what a checkpoint holds, and leaves the rest to the thread.
    pub(crate) fn take<M: Module>(&mut self, ddp: &Ddp<M>, progress: &Progress) -> Result<(), Error> {
        self.last.take(ddp, progress)
    }

    /// The same for the best checkpoint so far, which is kept apart: it may be older than the last few.
    pub(crate) fn take_best<M: Module>(&mut self, ddp: &Ddp<M>, progress: &Progress) -> Result<(), Error> {
        self.best.take(ddp, progress)
    }

    /// What the user has been told of them so far.
    pub(crate) fn take_warnings(&mut self) -> Warnings {
        let mut warnings = self.last.take_warnings();
        warnings.append(self.best.take_warnings());
        warnings
    }

    /// Waits for the last ones, which are tried again `until` then. Their failure is the run's: there is
    /// nothing to continue from.
    pub(crate) fn finish(self, until: Instant) -> Result<(), Error> {
        let best = self.best.finish(until);
        self.last.finish(until).and(best)
    }
}

impl Series {
    fn open(&mut self) -> Result<&Writer, Error> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => {
                self.run.check()?;
                Writer::guarded(&self.folder, self.keep, guard(&self.run))?
            }
        };
        Ok(self.writer.insert(writer))
    }

    fn take<M: Module>(&mut self, ddp: &Ddp<M>, progress: &Progress) -> Result<(), Error> {
        let mut position = progress.noted();
        position.notes[SAMPLING] = serde_json::json!(self.sampling);
        let snapshot = ddp.with_replica(|replica| checkpoint::snapshot(replica, &position))?;
        match self.open() {
            Ok(writer) => {
                writer.put(snapshot);
                self.unwritten = None;
            }
            Err(error) => {
                self.warnings.tell(format!(
                    "checkpoint not written: {error}; training goes on, the next checkpoint is another try"
                ));
                self.unwritten = Some(snapshot);
            }
        }
        Ok(())
    }

    fn take_warnings(&mut self) -> Warnings {
        let written = self.writer.as_ref().map(Writer::take_warnings).unwrap_or_default();
        written.iter().for_each(|warning| self.warnings.keep(warning.to_string()));
        std::mem::take(&mut self.warnings)
    }

    fn finish(mut self, until: Instant) -> Result<(), Error> {
        let opened = match self.unwritten.take() {
            Some(snapshot) => {
                let opened = patiently(until, || self.open().map(drop));
                opened.and_then(|()| self.open().map(|writer| writer.put(snapshot)))
            }
            None => Ok(()),
        };
        let left = || until.saturating_duration_since(Instant::now());
        let finish = |writer: Writer| writer.finish_within(left()).map_err(Error::from);
        let written = opened.and_then(|()| self.writer.map_or(Ok(()), finish));
        written.map_err(|error| Error::CheckpointLost(Box::new(error)))
    }
}

/// Lets the threads write as long as this process may.
fn guard(run: &RunFolder) -> Guard {
    let name = run.run_claim().map_or_else(String::new, |claim| claim.id());
    let run = run.clone();
    let lines = run.clone();
    let guard = Guard::new(name, move || run.check_claim().map_err(Into::into));
    // A step that a checkpoint knows is not done again, so its lines must be there as well.
    guard.sealing(move || {
        if let Err(error) = lines.sync_lines() {
            checkpoint::tell(&format_args!("{error}; the checkpoint is written nevertheless"));
        }
    })
}

/// Where the run was at the checkpoint of a step, from which others have continued; `None` if this worker
/// does not see it.
pub(crate) fn position(folder: &RunFolder, step: u64) -> Option<Position> {
    let reader = Reader::open(&checkpoint::path(&folder.checkpoints(), step)).ok()?;
    reader.position().ok()
}

/// Reads the newest checkpoint that is good on every rank. A collective.
pub(crate) fn resume<M: Module>(ddp: &mut Ddp<M>, folder: &RunFolder) -> Result<Position, Error> {
    let folder = folder.checkpoints();
    let resumed = ddp.resume(&folder).map_err(|error| match error {
        NoCommonCheckpoint { .. } => Error::Refused(error),
        other => other.into(),
    })?;
    resumed.map(|resumed| resumed.position).ok_or(Error::NoCheckpoint { folder })
}
