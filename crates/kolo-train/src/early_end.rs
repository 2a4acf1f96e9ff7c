//! The early end of a job: its last workers save the work.

use std::ops::Range;

use kolo_comm::Error::TooFew;
use kolo_comm::{Op, Rank};
use kolo_data::DataSet;
use kolo_metrics::Progress;
use kolo_recipe::RunFolder;

use crate::error::Error;
use crate::framework::Framework;
use crate::run_writer::RunWriter;
use crate::suspects::Suspects;
use crate::worker::{Ended, Worker};

impl<F: Framework<M>, M, D: DataSet + ?Sized + 'static> Worker<'_, F, M, D> {
    /// Recovers from an error with the remaining workers. If they are too few, they save the work and end.
    pub(crate) fn recover(&mut self, error: Error) -> Result<(), Error> {
        let Error::Training(error) = error else { return Err(error) };
        // The rank whose failure made the step fail.
        let failed = match &error {
            kolo_ddp::Error::Comm(error) => error.culprit(),
            _ => None,
        };
        let Err(error) = self.ddp.recover(error) else {
            self.note_failure(failed);
            return Ok(());
        };
        let can_save = matches!(error, kolo_ddp::Error::Comm(TooFew { is_last_group: true, .. }));
        if !can_save || self.ddp.steps() == 0 {
            return Err(error.into());
        }
        self.too_few = Some(error.to_string());
        Ok(())
    }

    /// Returns the reason to end here, if too few workers are left; `None` too if a step must be completed
    /// first, after which they leave, or if only the summary is missing. A collective in their last group.
    pub(crate) fn ends_here(&mut self, progress: &Progress) -> Result<Option<String>, Error> {
        let Some(too_few) = self.too_few.clone() else { return Ok(None) };
        let mut halfway = [i32::from(self.ddp.with_replica(|replica| replica.is_halfway()))];
        self.ddp.group().all_reduce(&mut halfway, Op::Max)?;
        if halfway == [1] {
            self.ddp.leave();
            return Ok(None);
        }
        Ok(Some(too_few).filter(|_| !progress.is_over() || progress.is_unrecorded()))
    }

    /// Describes the work that is lost with an end that saves nothing.
    fn lost_work(&self) -> &'static str {
        match self.job.folder.as_ref().is_some_and(RunFolder::has_checkpoints) {
            true => "what has been done since the last checkpoint is lost",
            false => "all of its work is lost, because there is no checkpoint",
        }
    }

    /// Records the failed worker for the step that will be repeated.
    fn note_failure(&mut self, failed: Option<Rank>) {
        let Some(generation) = self.ddp.generation() else { return };
        let mode = &self.job.config.sync.mode;
        // The others continue from an earlier step than the one in which the worker failed.
        let goes_back = mode.traits().rounds.is_some() || mode.traits().is_delayed;
        let shards = failed.and_then(|rank| self.division.get(rank.0).cloned()).filter(|_| !goes_back);
        self.suspects.note(self.ddp.steps(), &generation.reason, shards);
    }

    /// Shares the suspects of the next step and the division of shards among all ranks. Returns the reason
    /// not to try that step again, if any. A collective.
    pub(crate) fn compare_suspects(&mut self, progress: &Progress) -> Result<Option<String>, Error> {
        let here = (self.suspects.clone(), self.ddp.shards());
        let all: Vec<(Suspects, Range<usize>)> = self.ddp.group().all_gather_value(&here)?;
        let (suspects, division): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        (self.suspects, self.division) = (Suspects::best(suspects), division);
        Ok(self.suspects.verdict(progress.step(), &self.sampler, &*self.task.data))
    }

    /// Ends the run for all workers, with the reason, once rank 0 has written a checkpoint.
    pub(crate) fn end_together(
        &mut self,
        why: String,
        progress: &Progress,
        writer: Option<RunWriter>,
    ) -> Result<Ended, Error> {
        self.too_few = Some(why);
        let ended = self.end_early(progress, writer).err();
        let told: Vec<Option<String>> =
            self.ddp.group().all_gather_value(&ended.as_ref().map(ToString::to_string))?;
        let told = told.into_iter().flatten().next().map(Error::Unwritten);
        ended.or(told).map_or(Ok(Ended::Left), Err)
    }

    /// Returns the error of a worker that is left with too few others and must not save the work.
    pub(crate) fn nothing_kept(&self, error: Error, progress: &Progress) -> Error {
        match (&self.too_few, &error) {
            (Some(_), Error::Recipe(kolo_recipe::Error::NotTheWriter(_))) => Error::EndedEarly {
                too_few: self.too_few.clone(),
                max_hours: None,
                step: progress.step(),
                total: self.calendar.total,
                kept: format!("nothing of it is kept: {error}"),
                cause: Some(Box::new(error)),
            },
            _ => error,
        }
    }

    /// Ends all workers once they have been asked to, or their time is over. Rank 0 writes a checkpoint.
    ///
    /// The exit code of each says that the run is not finished where its launcher does not know: where nobody
    /// counts the workers, as in a group that was started by hand, and where the time ends a job of several
    /// nodes. There the workers wait for rank 0, because their launchers give those that are left a grace.
    pub(crate) fn end_with_others(
        &self,
        progress: &Progress,
        writer: Option<RunWriter>,
    ) -> Result<Ended, Error> {
        let ended = self.end_early(progress, writer);
        let is_elastic = self.ddp.generation().is_some();
        let checkpoint = match self.time_is_over {
            Some(_) if is_elastic => {
                let lost = match &ended {
                    Err(error @ Error::EndedEarly { cause: Some(_), .. }) => Some(error.to_string()),
                    _ => None,
                };
                let told = self.ddp.group().all_gather_value(&lost);
                ended?;
                match told.map(|told: Vec<Option<String>>| told.into_iter().flatten().next()) {
                    Ok(Some(lost)) => return Err(Error::Unwritten(lost)),
                    Ok(None) => "a checkpoint holds all of it",
                    // Writing takes longer than others wait, or rank 0 has died, which its launcher reports.
                    Err(_) => "rank 0 writes a checkpoint of all of it",
                }
            }
            _ => {
                ended?;
                if is_elastic {
                    return Ok(Ended::Left);
                }
                "rank 0 writes a checkpoint of all of it"
            }
        };
        let (step, total) = (progress.step(), self.calendar.total);
        let kept = kept(step, total, checkpoint);
        Err(Error::EndedEarly { too_few: None, max_hours: self.time_is_over, step, total, kept, cause: None })
    }

    /// Writes a checkpoint after all workers have left, so that no work is lost. Returns the error of the
    /// early end on rank 0.
    pub(crate) fn end_early(&self, progress: &Progress, writer: Option<RunWriter>) -> Result<(), Error> {
        let Some(writer) = writer else { return Ok(()) };
        let (step, total) = (progress.step(), self.calendar.total);
        let (kept, cause) = match writer.end_early(&self.ddp, progress) {
            Ok(()) => (kept(step, total, "a checkpoint holds all of it"), None),
            Err(failure) => {
                // A launcher that is itself ending does not show the error.
                kolo_ddp::checkpoint::tell(&failure);
                let lost = format!("{}: {failure}", self.lost_work());
                (lost, Some(Box::new(failure)))
            }
        };
        let (too_few, max_hours) = (self.too_few.clone(), self.time_is_over);
        Err(Error::EndedEarly { too_few, max_hours, step, total, kept, cause })
    }
}

/// Returns the sentence about the saved work. A run that was asked to end after its last step lacks its end
/// only.
fn kept(step: u64, total: u64, checkpoint: &str) -> String {
    match step >= total {
        true => format!(
            "{checkpoint}: the training is complete, and resuming it only evaluates it and writes summary.json"
        ),
        false => checkpoint.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_ends_after_its_last_step_is_complete() {
        assert_eq!(kept(3, 4, "a checkpoint holds all of it"), "a checkpoint holds all of it");
        let words = kept(4, 4, "a checkpoint holds all of it");
        assert!(words.starts_with("a checkpoint holds all of it: the training is complete"), "{words}");
    }
}
