//! Writes the checkpoints of a run, and finds the one to continue from.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use kolo_ddp::Ddp;
use kolo_ddp::Error::NoCommonCheckpoint;
use kolo_ddp::binding::Binding;
use kolo_ddp::checkpoint::{self, Guard, Position, Reader, Snapshot, Writer};
use kolo_metrics::Progress;
use kolo_recipe::Recipe;
use kolo_recipe::RunFolder;

use crate::error::Error;
use crate::patience::patiently;
use crate::resume_check::{STATE, explained, state_settings};
use crate::sampling::Sampling;
use crate::warn::Warnings;

/// Origin of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// The calendar: a newer checkpoint is as good, if the disk is too slow for both.
    Routine,
    /// A callback ([`Flow::Checkpoint`](crate::Flow)): this one is written.
    Asked,
}

/// The checkpoints of rank 0, which copies the state between two steps. Threads write the copies.
pub(crate) struct Checkpoints {
    last: Series,
    best: Series,
}

/// Checkpoints in one folder, of which the last few are kept.
struct Series {
    run: RunFolder,
    folder: PathBuf,
    keep: usize,
    sampling: Sampling,
    /// Settings that decide which state a checkpoint has.
    state: BTreeMap<String, String>,
    /// `None` until the folder can be written to.
    writer: Option<Writer>,
    /// Last checkpoint, if it has not even reached the writer.
    unwritten: Option<Snapshot>,
    /// Warnings that the user has received.
    warnings: Warnings,
}

impl Checkpoints {
    pub(crate) fn new(run: &RunFolder, config: &Recipe, sampling: &Sampling) -> Self {
        let series = |folder, keep| Series {
            run: run.clone(),
            folder,
            keep,
            sampling: sampling.clone(),
            // A recipe that cannot be written has made no run folder.
            state: state_settings(config).unwrap_or_default(),
            writer: None,
            unwritten: None,
            warnings: Warnings::default(),
        };
        Checkpoints { last: series(run.checkpoints(), config.keep_checkpoints), best: series(run.best(), 1) }
    }

    /// Opens the folder for writing, unless it is open.
    pub(crate) fn open(&mut self) -> Result<(), Error> {
        self.last.open().map(drop)
    }

    /// Copies the state of a checkpoint, and leaves the writing to the thread.
    pub(crate) fn take<B: Binding>(
        &mut self,
        ddp: &Ddp<B>,
        progress: &Progress,
        demand: Demand,
    ) -> Result<(), Error> {
        self.last.take(ddp, progress, demand)
    }

    /// Does the same for the best checkpoint so far, kept apart because it may be older than the last few.
    pub(crate) fn take_best<B: Binding>(&mut self, ddp: &Ddp<B>, progress: &Progress) -> Result<(), Error> {
        self.best.take(ddp, progress, Demand::Routine)
    }

    /// Takes the warnings that the user has received about checkpoints.
    pub(crate) fn take_warnings(&mut self) -> Warnings {
        let mut warnings = self.last.take_warnings();
        warnings.append(self.best.take_warnings());
        warnings
    }

    /// Waits for the last checkpoints, and retries failed ones `until` then. Their failure fails the run:
    /// there is nothing to continue from.
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

    fn take<B: Binding>(&mut self, ddp: &Ddp<B>, progress: &Progress, demand: Demand) -> Result<(), Error> {
        // A checkpoint that was asked for is waited for, if the disk is slow.
        let _working = kolo_elastic::working();
        let mut position = progress.noted();
        self.sampling.write(&mut position);
        position.notes[STATE] = serde_json::json!(self.state);
        let snapshot = ddp.with_replica(|replica| checkpoint::snapshot(replica, &position))?;
        match self.open() {
            Ok(writer) => {
                match demand {
                    Demand::Routine => writer.put(snapshot),
                    Demand::Asked => writer.put_to_stay(snapshot),
                }
                self.unwritten = None;
            }
            Err(error) => {
                self.warnings.tell(format!(
                    "Kolo could not write a checkpoint: {error}; training continues, and the next checkpoint is another try"
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
    // A step within a checkpoint is not repeated, so its lines must be durable too.
    guard.sealing(move || {
        if let Err(error) = lines.sync_lines() {
            checkpoint::tell(&format_args!("{error}; the checkpoint is written nevertheless"));
        }
    })
}

/// Returns the run's position at the checkpoint of a step, from which other ranks have continued; `None` if
/// this worker does not see the checkpoint.
pub(crate) fn position(folder: &RunFolder, step: u64) -> Option<Position> {
    let reader = Reader::open(&checkpoint::path(&folder.checkpoints(), step)).ok()?;
    reader.position().ok()
}

/// Reads the newest checkpoint that is good on every rank. A collective.
pub(crate) fn resume<B: Binding>(
    ddp: &mut Ddp<B>,
    run: &RunFolder,
    config: &Recipe,
) -> Result<Position, Error> {
    let folder = run.checkpoints();
    let resumed = ddp.resume(&folder).map_err(|error| match error {
        NoCommonCheckpoint { .. } => Error::Refused(error),
        other => explained(run, config, other),
    })?;
    resumed.map(|resumed| resumed.position).ok_or(kolo_recipe::Error::NoCheckpoint { folder }.into())
}
