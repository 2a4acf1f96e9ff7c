//! The steps of an epoch: batches, shards, and the work after each step.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kolo_comm::Op;
use kolo_data::{DataSet, PrefetchError, ShardBatch};
use kolo_ddp::checkpoint::Position;
use kolo_ddp::cross_shard::CrossShardPass;
use kolo_ddp::straggler::{Policy, Straggler};
use kolo_ddp::{Change, Ddp, Sampler, StepReport};
use kolo_metrics::{Progress, Record, StepRow};
use kolo_trace::What;

use crate::due::{Demand, Due};
use crate::error::Error;
use crate::flow::{self, Flow, Moment};
use crate::framework::{Framework, Pass};
use crate::mixing::mix;
use crate::outcome::Outcome;
use crate::run_writer::RunWriter;
use crate::slowdown::{Slowdown, Work};
use crate::suspects::listed;
use crate::worker::Worker;

const MILLISECONDS_OF_HOUR: f64 = 3.6e6;

impl<F: Framework<M>, M, D: DataSet + ?Sized + 'static> Worker<'_, F, M, D> {
    /// Trains and moves the progress until the next evaluation, or until the run is over. Returns an outcome
    /// if the members of the job change before that.
    pub(crate) fn epoch(
        &mut self,
        progress: &mut Progress,
        writer: &mut Option<RunWriter>,
    ) -> Result<Option<Outcome>, Error> {
        loop {
            let report = self.timed_step(progress, writer)?;
            writer.as_ref().map_or(Ok(()), RunWriter::check)?;
            // In a changed group the worker may have another rank.
            if let (Change::None, Some(straggler)) = (report.change, &report.straggler) {
                self.drop_or_keep(straggler)?;
            }
            match report.change {
                Change::None => {}
                Change::Regrouped => return Ok(Some(Outcome::Regrouped)),
                Change::Left => return Ok(Some(Outcome::Left)),
                // After the last step there is nothing to leave.
                Change::AllLeft if progress.is_over() => {}
                Change::AllLeft => return Ok(Some(Outcome::AllLeft)),
            }
            if progress.is_evaluated_here() {
                return Ok(None);
            }
        }
    }

    fn timed_step(
        &mut self,
        progress: &mut Progress,
        writer: &mut Option<RunWriter>,
    ) -> Result<StepReport, Error> {
        let (step, epoch) = (progress.step(), progress.position().epoch);
        kolo_trace::begin_step(step);
        self.step_began = Instant::now();
        let rate = (self.rate)(step);
        // Islands that rarely synchronize leave at the end of their round, which all workers must reach.
        if self.stop.get() {
            if self.stop.is_new() {
                self.announce_late_end(step);
            }
            self.ddp.leave();
        }
        // The work after this step needs one model, and the losses of all steps.
        if self.calendar.after(step + 1).gathering {
            self.ddp.end_round();
        }
        let report = self.step(progress.position(), rate)?;
        report.warnings.iter().for_each(|warning| self.warnings.keep(warning.to_string()));
        let ended = Instant::now();
        kolo_trace::span(self.step_began, ended, || What::Step);
        let row = StepRow::new(step, epoch, rate, ended - self.step_began, &report);
        for (row, report) in progress.settle(row, &report) {
            progress.add_step(row.clone());
            if let Some(writer) = writer {
                let record = Record::Step { row: &row, report: &report, epoch: progress.epoch_meter() };
                self.tell(writer, &record, progress);
            }
        }
        // After a change of members newcomers do not know of this step, and the next checkpoint counts.
        if !matches!(report.change, Change::None | Change::AllLeft) {
            return Ok(report);
        }
        let asked = self.agree(Moment::Step, progress)? == Flow::Checkpoint;
        self.heed_time(progress)?;
        // Where the model is evaluated, that comes first.
        if (asked || self.calendar.after(progress.step()).checkpoint) && !progress.is_evaluated_here() {
            self.gather_state()?;
            if let Some(writer) = writer {
                writer.flush(progress);
            }
            let demand = if asked { Demand::Asked } else { Demand::Routine };
            self.save(progress, writer, Due::last(progress, demand))?;
        }
        Ok(report)
    }

    /// Says where a run ends that has been asked to before `step`, if that may be many steps later: workers
    /// that do not wait for one another have one model only where all of them meet.
    fn announce_late_end(&mut self, step: u64) {
        let mode = &self.job.config.sync.mode;
        if mode.traits().staleness_bound.is_none() || self.ddp.rank().0 > 0 {
            return;
        }
        let total = self.calendar.total;
        let meets = (step + 1..=total).find(|steps| self.calendar.after(*steps).gathering).unwrap_or(total);
        self.warnings.tell(format!(
            "the run has been asked to end, and with --sync {mode} it saves and ends where all workers meet next: after \
             step {meets} of {total}; if it is killed before, the steps since the last checkpoint, or since the start \
             without one, are lost (--checkpoint-steps makes workers meet more often)"
        ));
    }

    /// Makes all workers leave at the end of their next step if the time of the run is over, by the longest
    /// of their clocks. A collective, if the time is limited.
    fn heed_time(&mut self, progress: &Progress) -> Result<(), Error> {
        let recipe = &self.job.config;
        let Some(hours) = recipe.max_hours else { return Ok(()) };
        // Other workers may be at another step.
        if !flow::has_one_model(recipe) && !self.calendar.after(progress.step()).gathering {
            return Ok(());
        }
        let mut milliseconds = [self.began.elapsed().as_millis() as i64];
        self.ddp.group().all_reduce(&mut milliseconds, Op::Max)?;
        if milliseconds[0] as f64 >= hours * MILLISECONDS_OF_HOUR {
            self.time_is_over = Some(hours);
            self.ddp.leave();
        }
        Ok(())
    }

    /// Drops a rank that slows the others down, unless the policy or `--min` keeps it. All ranks decide the
    /// same after the same step.
    fn drop_or_keep(&mut self, straggler: &Straggler) -> Result<(), Error> {
        if self.job.config.straggler()? != Policy::Drop {
            return Ok(());
        }
        let (Straggler { rank, reason, .. }, min) = (straggler, self.job.min_workers);
        let workers = self.ddp.workers();
        if workers.len() > min || !workers.contains(rank) {
            let reason = format!("{rank} is dropped: {reason}");
            self.ddp.with_replica(|replica| replica.leave_out(*rank, &reason));
        } else if self.ddp.rank().0 == 0 {
            let words = format!("{rank} stays: without it there would be fewer workers than --min {min}");
            self.warnings.tell(words);
        }
        Ok(())
    }

    fn step(&mut self, position: &Position, rate: f64) -> Result<StepReport, Error> {
        let (recipe, epoch, step) = (&self.job.config, position.epoch, position.step_in_epoch);
        self.pause.store(self.pause_of(Work::Data).as_millis() as u64, Ordering::Relaxed);
        let pause = self.pause_of(Work::Compute);
        let Worker { framework, task, loader, ddp, sampler, .. } = self;
        let shards = ddp.shards();
        let batches = loader.step(epoch, step, shards.clone()).zip(shards);
        let batches = batches.map(|(batch, shard)| {
            batch.map_err(|error| of_samples((sampler, &*task.data), (epoch, step), shard, error))
        });
        let take = |batch: Result<ShardBatch<D::Batch>, Error>, ddp: &Ddp<F::Model>| {
            let (batch, now) = (batch?, Instant::now());
            kolo_trace::span(now.checked_sub(batch.waited).unwrap_or(now), now, || What::Data);
            ddp.data_waited(batch.waited);
            Ok::<_, Error>((batch.shard, batch.batch))
        };
        if recipe.in_step() {
            // All of this rank's shards together, normalized over the global batch.
            let inputs = batches.map(|batch| Ok(take(batch, ddp)?.1)).collect::<Result<Vec<_>, Error>>()?;
            let (loss, framework) = (&task.loss, &*framework);
            let forward = |model: &F::Model, mut batch: D::Batch, cross_shard: &CrossShardPass| {
                std::thread::sleep(pause);
                let (shard, cross_shard) = (cross_shard.shard(), Some(cross_shard));
                let mixing = mix(recipe, (epoch, step), shard, &mut batch);
                let pass = Pass { recipe, epoch, step, shard, mixing: mixing.as_ref(), cross_shard };
                framework.training(&pass, |context| loss(F::module(model), batch, context))
            };
            kolo_trace::spanned(What::Passes, || ddp.cross_shard_passes(inputs, forward))?;
        } else {
            for batch in batches {
                let (shard, batch) = take(batch, ddp)?;
                let Some(mut batch) = batch else {
                    std::thread::sleep(pause);
                    ddp.skip_shard()?;
                    continue;
                };
                let mixing = mix(recipe, (epoch, step), shard, &mut batch);
                let mixing = mixing.as_ref();
                let pass = Pass { recipe, epoch, step, shard, mixing, cross_shard: None };
                let loss = kolo_trace::spanned(What::Forward, || {
                    std::thread::sleep(pause);
                    let model = F::module(ddp.model());
                    framework.training(&pass, |context| (task.loss)(model, batch, context))
                });
                ddp.backward(loss)?;
            }
        }
        Ok(ddp.step(rate)?)
    }

    /// Sleep of this rank for such work, if it is slowed down.
    fn pause_of(&self, work: Work) -> Duration {
        Slowdown::pause(&self.job.slowdowns, self.ddp.rank().0, work)
    }
}

/// Names the samples of a shard that could not be prepared. Epoch and step count from 0.
fn of_samples<D: DataSet + ?Sized>(
    (sampler, data): (&Sampler, &D),
    (epoch, step): (usize, usize),
    shard: usize,
    source: PrefetchError,
) -> Error {
    match source {
        PrefetchError::Panicked(_) => {
            let samples = listed(data, &sampler.epoch(epoch).shard(step, shard));
            Error::Samples { epoch: epoch + 1, step, shard, samples, source }
        }
        PrefetchError::Data(error) => (*error).into(),
        other => other.into(),
    }
}
