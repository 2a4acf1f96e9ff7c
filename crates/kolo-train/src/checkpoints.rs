//! Writes the checkpoints of a run, and finds the one to continue from.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use kolo_ddp::CheckpointError::SnapshotNotFinite;
use kolo_ddp::Ddp;
use kolo_ddp::Error::NoCommonCheckpoint;
use kolo_ddp::binding::Binding;
use kolo_ddp::checkpoint::{self, Guard, Position, Reader, Snapshot, Writer};
use kolo_metrics::Progress;
use kolo_recipe::Recipe;
use kolo_recipe::RunFolder;

use crate::due::{Demand, Due};
use crate::error::Error;
use crate::patience::{PATIENCE, patiently};
use crate::resume_check::{RECIPE, explained};
use crate::sampling::Sampling;
use crate::warn::Warnings;

/// The checkpoints of rank 0, which copies the state between two steps. Threads write the copies. Where ranks
/// hold parts of the state, nobody copies it, and training waits until it is written.
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
    /// Settings on which a result depends.
    recipe: BTreeMap<String, String>,
    /// `None` until the folder can be written to.
    writer: Option<Writer>,
    /// Last checkpoint, if it has not even reached the writer.
    unwritten: Option<Snapshot>,
    /// Error of the last checkpoint, if nobody has its values any more.
    lost: Option<Error>,
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
            recipe: config.noted().unwrap_or_default(),
            writer: None,
            unwritten: None,
            lost: None,
            warnings: Warnings::default(),
        };
        Checkpoints { last: series(run.checkpoints(), config.keep_checkpoints), best: series(run.best(), 1) }
    }

    /// Opens the folder for writing, and makes room: a run may continue from `step` with fewer checkpoints to
    /// keep, because the disk is full.
    pub(crate) fn open(&mut self, step: u64) -> Result<(), Error> {
        self.last.open()?.prune(step);
        Ok(())
    }

    /// Copies the state of the checkpoints that are due, and leaves the writing to threads; or writes them
    /// now, where ranks hold parts of the state. The best one so far is kept apart, because it may be older
    /// than the last few.
    pub(crate) fn take<B: Binding>(
        &mut self,
        ddp: &Ddp<B>,
        progress: &Progress,
        due: &Due,
    ) -> Result<(), Error> {
        if due.is_best {
            self.best.take(ddp, progress, Demand::Routine, due.at_end)?;
        }
        due.last.map_or(Ok(()), |demand| self.last.take(ddp, progress, demand, due.at_end))
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

    fn take<B: Binding>(
        &mut self,
        ddp: &Ddp<B>,
        progress: &Progress,
        demand: Demand,
        at_end: bool,
    ) -> Result<(), Error> {
        // A checkpoint that was asked for is waited for, if the disk is slow.
        let _working = kolo_elastic::working();
        let mut position = progress.noted();
        self.sampling.write(&mut position);
        position.notes[RECIPE] = serde_json::json!(self.recipe);
        self.lost = None;
        if ddp.with_replica(|replica| replica.divides_state()) {
            return self.write_divided(ddp, &position, at_end);
        }
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
                self.warnings.tell(not_written(&error));
                self.unwritten = Some(snapshot);
            }
        }
        Ok(())
    }

    /// Writes a checkpoint of which other ranks hold parts; they are in `Replica::serve_state`. At the end of
    /// a run it is tried for a while. Fails if a rank fails, or a value is not finite.
    fn write_divided<B: Binding>(
        &mut self,
        ddp: &Ddp<B>,
        position: &Position,
        at_end: bool,
    ) -> Result<(), Error> {
        let now = Instant::now();
        let mut failure = None;
        let written = patiently(if at_end { now + PATIENCE } else { now }, || {
            let writer = self.open()?;
            let write = |replica: &mut _| {
                checkpoint::write_divided(replica, position, |outline, source| writer.write(outline, source))
            };
            match ddp.with_replica(write) {
                Ok(Err(error @ SnapshotNotFinite { .. })) => failure = Some(error.into()),
                Ok(written) => return written.map_err(Error::from),
                Err(error) => failure = Some(error.into()),
            }
            Ok::<_, Error>(())
        });
        if let Some(failure) = failure {
            return Err(failure);
        }
        self.unwritten = None;
        self.lost = written.err();
        if let Some(error) = self.lost.as_ref().filter(|_| !at_end) {
            self.warnings.tell(not_written(error));
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
        let opened = opened.and(self.lost.map_or(Ok(()), Err));
        let written = opened.and_then(|()| self.writer.map_or(Ok(()), finish));
        written.map_err(|error| Error::CheckpointLost(Box::new(error)))
    }
}

/// Returns the warning that a checkpoint could not be written.
fn not_written(error: &Error) -> String {
    format!(
        "Kolo could not write a checkpoint: {error}; training continues, and the next checkpoint is another try"
    )
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
