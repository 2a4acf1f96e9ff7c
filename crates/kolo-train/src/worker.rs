//! One worker's run: the epochs and the end. Every part with collectives can be repeated after the
//! death of another worker.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use kolo_comm::schedule::words::counted;
use kolo_data::{DataSet, Loader};
use kolo_ddp::{Ddp, Sampler};
use kolo_metrics::{Calendar, Progress, Record, SampleCounts, Summary};

use kolo_recipe::SettingChange;

use crate::due::Due;
use crate::error::Error;
use crate::evaluate::Evaluated;
use crate::flow::Answers;
use crate::framework::Framework;
use crate::job::Job;
use crate::lineage::Lineage;
use crate::outcome::Outcome;
use crate::run_writer::RunWriter;
use crate::sampling::Sampling;
use crate::signals::StopRequested;
use crate::slowdown::SlowData;
use crate::summarize::{parameters, peak_rss, skipped_warning, summary_of};
use crate::suspects::Suspects;
use crate::task::Task;
use crate::timeline;
use crate::warn::Warnings;

/// The end of a worker's part of the run.
pub(crate) enum Ended {
    /// The worker has left the job, which continues without it.
    Left,
    /// The run is over; rank 0 has the summary.
    Over(Option<Box<Summary>>),
}

/// State of every rank.
pub(crate) struct Worker<'a, F: Framework<M>, M, D: DataSet + ?Sized> {
    pub(crate) framework: F,
    pub(crate) job: &'a Job,
    pub(crate) task: &'a mut Task<F, M, D>,
    pub(crate) loader: Loader<SlowData<D>>,
    /// Sleep of the loader before each batch, in milliseconds.
    pub(crate) pause: Arc<AtomicU64>,
    pub(crate) calendar: Calendar,
    /// Learning rate of each step, from 0.
    pub(crate) rate: Box<dyn Fn(u64) -> f64>,
    pub(crate) ddp: Ddp<F::Model>,
    /// The facts that decide which samples come in which step.
    pub(crate) sampling: Sampling,
    /// Settings that have changed since the checkpoint, until they are reported.
    pub(crate) changes: Vec<SettingChange>,
    pub(crate) stop: StopRequested,
    /// Start of this worker.
    pub(crate) began: Instant,
    /// Start of the present or last step.
    pub(crate) step_began: Instant,
    /// Reason of an early end, unless a signal caused it.
    pub(crate) too_few: Option<String>,
    /// The limit in hours, after it has made the workers leave.
    pub(crate) time_is_over: Option<f64>,
    /// Warnings that this worker's user has received.
    pub(crate) warnings: Warnings,
    /// Claims to the run folder that this worker knows of.
    pub(crate) lineage: Lineage,
    /// Samples of each shard in each step.
    pub(crate) sampler: Sampler,
    /// The last evaluation by this worker, and the number of steps before it.
    pub(crate) evaluated: Option<(u64, Evaluated)>,
    /// Workers that have failed in the present step.
    pub(crate) suspects: Suspects,
    /// Shards of each rank of the generation.
    pub(crate) division: Vec<Range<usize>>,
    /// Last answers of this worker's callbacks.
    pub(crate) answers: Answers,
    /// Checkpoints that were due when a worker died, or the last rank 0 has not written.
    pub(crate) unsaved: Option<Due>,
}

impl<F: Framework<M>, M, D: DataSet + ?Sized + 'static> Worker<'_, F, M, D> {
    pub(crate) fn describe(&self) -> String {
        let (config, workers) = (&self.job.config, self.ddp.workers().len());
        let servers = match self.ddp.group().world_size() - workers {
            0 => String::new(),
            servers => format!(" and {}", counted(servers, "summation server")),
        };
        let group = self.ddp.group();
        let over = match group.world_size() {
            1 => String::new(),
            _ => format!(" over {}", group.transport()),
        };
        format!(
            "{} ({} parameters){}: {}{over}{servers}, {} × {} a step{}, {}{}",
            config.model,
            parameters(&self.ddp),
            config.on_data(),
            counted(workers, "worker"),
            counted(config.shards, "shard"),
            counted(config.batch_size, "sample"),
            config.large_batch.describe_growth(),
            counted(self.calendar.total, "step"),
            config.describe_groups(self.ddp.layout()),
        )
    }

    /// Trains until the run is over, or this worker leaves it.
    pub(crate) fn run(&mut self) -> Result<Ended, Error> {
        // A worker that joins later starts at the others' step.
        let mut progress = Progress::at(self.ddp.steps(), self.calendar.clone());
        let mut writer = None;
        let ended = self.train(&mut progress, &mut writer);
        if let (Err(_), Some(writer)) = (&ended, &mut writer) {
            // The last steps before a failure show best why it came.
            writer.flush(&progress);
        }
        ended
    }

    fn train(&mut self, progress: &mut Progress, writer: &mut Option<RunWriter>) -> Result<Ended, Error> {
        let started = Instant::now();
        let mut begins = true;
        loop {
            match self.go_on(progress, writer, begins) {
                Ok(Outcome::Over { peak_rss_bytes }) => {
                    let seconds = started.elapsed().as_secs_f64();
                    let ended = self.end(progress, writer.take(), peak_rss_bytes, seconds);
                    match self.part(ended.as_ref().err()) {
                        Ok(unwritten) => {
                            let summary = ended?.map(Box::new);
                            return unwritten.map_or(Ok(Ended::Over(summary)), Err);
                        }
                        Err(error) => self.recover(error)?,
                    }
                }
                Ok(Outcome::Left) => {
                    log::info!("this worker has left the job after step {}", progress.step());
                    return Ok(Ended::Left);
                }
                Ok(Outcome::AllLeft) => match self.save_before_end(progress, writer) {
                    Ok(()) => {
                        if let Some(why) = self.too_few.take() {
                            return self.end_together(why, progress, writer.take());
                        }
                        return self.end_with_others(progress, writer.take());
                    }
                    Err(error) => self.recover(error)?,
                },
                Ok(Outcome::Ends(why)) => match self.save_before_end(progress, writer) {
                    Ok(()) => return self.end_together(why, progress, writer.take()),
                    Err(error) => self.recover(error)?,
                },
                Ok(Outcome::Regrouped) => {}
                Err(error) => self.recover(error)?,
            }
            begins = false;
        }
    }

    /// Makes and writes the summary on rank 0.
    fn end(
        &mut self,
        progress: &Progress,
        mut writer: Option<RunWriter>,
        peak_rss_bytes: u64,
        seconds: f64,
    ) -> Result<Option<Summary>, Error> {
        if self.ddp.rank().0 > 0 {
            return Ok(None);
        }
        if let Some(writer) = &mut writer {
            self.warnings.append(writer.take_warnings());
        }
        let (unit, metrics) = (&self.task.unit, self.task.measured());
        let mut summary =
            summary_of(&self.ddp, &self.job.config, unit, metrics, progress, peak_rss_bytes, seconds)?;
        if let Some((_, Evaluated { part, scores, classification })) = self.evaluated.take() {
            let data = &*self.task.data;
            summary.classification = classification.map(|counts| counts.described(part, data));
            if part != self.task.judging_part() {
                summary.scores.0.extend(scores.0);
            }
        }
        summary.samples = SampleCounts::of(&*self.task.data);
        summary.best = self.best_score(progress);
        if self.job.range_test.is_some() {
            // The curve is its result, and tells of skipped steps.
            return Ok(Some(summary));
        }
        if let Some(words) = skipped_warning(&summary) {
            self.warnings.tell(words);
        }
        summary.warnings = self.warnings.lines();
        if let Some(writer) = writer {
            writer.end(&summary, progress)?;
            self.call_listeners(&Record::Summary(&summary), progress);
        }
        Ok(Some(summary))
    }

    /// Waits, in an elastic job, until rank 0 has written everything, because another worker may have to
    /// replace it. All workers receive rank 0's failure: the job has failed, whichever of them ends first.
    fn part(&self, unwritten: Option<&Error>) -> Result<Option<Error>, Error> {
        if self.ddp.generation().is_none() {
            return Ok(None);
        }
        let told: Vec<Option<String>> =
            self.ddp.group().all_gather_value(&unwritten.map(ToString::to_string))?;
        Ok(told.into_iter().flatten().next().map(Error::Unwritten))
    }

    /// Continues from the ranks' present step until the run is over or the members change. `begins` is true
    /// for the first time.
    fn go_on(
        &mut self,
        progress: &mut Progress,
        writer: &mut Option<RunWriter>,
        begins: bool,
    ) -> Result<Outcome, Error> {
        let generation = self.ddp.generation().map_or(0, |generation| generation.number);
        kolo_trace::rank(self.ddp.rank().0, self.ddp.group().world_size(), generation);
        self.catch_up(progress)?;
        progress.synchronize(self.ddp.group())?;
        self.heed_patience(progress);
        let poisoned = self.compare_suspects(progress)?;
        self.choose_writer(progress, writer, begins).map_err(|error| self.nothing_kept(error, progress))?;
        self.agree_again(progress)?;
        if let Some(why) = self.ends_here(progress)?.or(poisoned) {
            // Rank 0 saves the state that other workers hold, too.
            self.gather_state()?;
            return Ok(Outcome::Ends(why));
        }
        self.save_again(progress, writer)?;
        loop {
            if progress.is_unrecorded() {
                if !self.record_epoch(progress, writer)? {
                    return Ok(Outcome::AllLeft);
                }
                writer.as_ref().map_or(Ok(()), RunWriter::check)?;
            }
            if progress.is_over() {
                break;
            }
            if let Some(outcome) = self.epoch(progress, writer)? {
                return Ok(outcome);
            }
        }
        if !self.look_at_test(progress.step())? {
            return Ok(Outcome::AllLeft);
        }
        timeline::close();
        Ok(Outcome::Over { peak_rss_bytes: peak_rss(self.ddp.group())? })
    }

    /// Passes a record to all sinks and listeners, on rank 0.
    pub(crate) fn tell(&mut self, writer: &mut RunWriter, record: &Record<'_>, progress: &Progress) {
        writer.record(record, progress);
        self.call_listeners(record, progress);
    }
}
