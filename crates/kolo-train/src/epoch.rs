//! The steps of an epoch: batches, shards, what follows each step.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kolo_burn::{BurnModel, DropoutKey};
use kolo_data::{AugmentKey, Batch, Part, Prefetch, Request};
use kolo_ddp::checkpoint::Position;
use kolo_ddp::cross_shard::CrossShardPass;
use kolo_ddp::straggler::{Policy, Straggler};
use kolo_ddp::{Change, StepReport};

use crate::error::Error;
use crate::meter::StepRow;
use crate::model::{Model, TrainingContext};
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::run_writer::RunWriter;
use crate::sinks::Record;
use crate::slowdown::{Slowdown, Work};
use crate::worker::Worker;

/// Batches prepared ahead.
const AHEAD: usize = 3;

impl<M: Model> Worker<'_, M> {
    /// Trains until the epoch or the run is over, or the members of the job have changed: then it says so.
    /// Moves the progress.
    pub(crate) fn epoch(
        &mut self,
        progress: &mut Progress,
        writer: &mut Option<RunWriter>,
    ) -> Result<Option<Outcome>, Error> {
        let steps = self.sampler.steps();
        let (epoch, first) = (progress.position.epoch, progress.position.step_in_epoch);
        let mut batches = self.batches(epoch, first..steps)?;
        for _ in first..steps {
            if progress.is_over() {
                break;
            }
            let report = self.timed_step(&mut batches, progress, writer)?;
            // In a group that has just changed it may have another rank.
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
            if report.shards_changed && progress.position.step_in_epoch > 0 {
                batches = self.batches(epoch, progress.position.step_in_epoch..steps)?;
            }
        }
        Ok(None)
    }

    /// One step and its row.
    fn timed_step(
        &mut self,
        batches: &mut Prefetch,
        progress: &mut Progress,
        writer: &mut Option<RunWriter>,
    ) -> Result<StepReport, Error> {
        let (step, epoch) = (progress.step(), progress.position.epoch);
        self.step_began = Instant::now();
        let rate = self.rate.at(step);
        if self.leaving.load(Ordering::Relaxed) {
            self.ddp.with_replica(|replica| replica.leave());
        }
        let report = self.step(batches, &progress.position, rate)?;
        if !report.loss.is_finite() {
            return Err(Error::Diverged { loss: report.loss, step });
        }
        let row = StepRow::new(step, epoch, rate, self.step_began.elapsed(), &report);
        progress.add_step(row.clone());
        // Where rank 0 may save, all bring what it does not have.
        let position = &progress.position;
        let every = self.job.config.checkpoint_steps;
        let within = every.is_some_and(|steps| position.step.is_multiple_of(steps));
        if within || position.step_in_epoch == 0 || progress.is_over() {
            self.ddp.with_replica(|replica| replica.gather_residuals())?;
        }
        if let Some(writer) = writer {
            self.record_step(&row, &report, progress, writer)?;
        }
        Ok(report)
    }

    /// What becomes of a rank that holds the others up, where it is not to be kept. All ranks know of it
    /// after the same step.
    fn drop_or_keep(&self, straggler: &Straggler) -> Result<(), Error> {
        if self.job.config.straggler()? != Policy::Drop {
            return Ok(());
        }
        let (Straggler { rank, reason, .. }, min) = (straggler, self.job.min_workers);
        if self.ddp.group().world_size() > min {
            let reason = format!("{rank} is dropped: {reason}");
            self.ddp.with_replica(|replica| replica.leave_out(*rank, &reason));
        } else if self.ddp.rank().0 == 0 {
            log::warn!("{rank} stays: without it there would be fewer workers than --min {min}");
        }
        Ok(())
    }

    /// On rank 0, after each step.
    fn record_step(
        &self,
        row: &StepRow,
        report: &StepReport,
        progress: &Progress,
        writer: &mut RunWriter,
    ) -> Result<(), Error> {
        writer.record(&Record::Step { row, report, epoch: progress.epoch_meter() }, progress);
        let goes_on = progress.position.step_in_epoch > 0 && !progress.is_over();
        if goes_on && writer.checkpoints.due_within_epoch(&progress.position) {
            writer.flush(progress);
            writer.checkpoints.take(&self.ddp, progress)?;
        }
        Ok(())
    }

    fn step(&mut self, batches: &mut Prefetch, position: &Position, rate: f64) -> Result<StepReport, Error> {
        let (seed, epoch, step) = (self.job.config.seed, position.epoch, position.step_in_epoch);
        let key = move |shard| DropoutKey { seed, epoch, step, shard };
        if self.job.config.in_step() {
            let inputs = self.ddp.shards().map(|_| self.batch(batches)).collect::<Result<Vec<_>, _>>()?;
            self.cross_shard_passes(inputs, key)?;
        } else {
            for shard in self.ddp.shards() {
                let batch = self.batch(batches)?;
                self.shard(batch, &key(shard))?;
            }
        }
        Ok(self.ddp.step(rate)?)
    }

    fn batch(&self, batches: &mut Prefetch) -> Result<Batch, Error> {
        let asked = Instant::now();
        let batch = batches.next().ok_or(Error::DataEnded)?;
        self.ddp.data_waited(asked.elapsed());
        Ok(batch?)
    }

    fn shard(&mut self, batch: Batch, dropout: &DropoutKey) -> Result<(), Error> {
        std::thread::sleep(self.pause(Work::Compute));
        if batch.is_empty() {
            return Ok(self.ddp.skip_shard()?);
        }
        let context = TrainingContext { dropout, cross_shard: None, device: &self.trainable };
        let loss = self.ddp.model().loss(batch, &context);
        Ok(self.ddp.backward(loss)?)
    }

    /// All of this rank's shards together, normalised over the global batch.
    fn cross_shard_passes(
        &mut self,
        inputs: Vec<Batch>,
        key: impl Fn(usize) -> DropoutKey + Sync,
    ) -> Result<(), Error> {
        let (pause, device) = (self.pause(Work::Compute), &self.trainable);
        let inputs = inputs.into_iter().map(|batch| (!batch.is_empty()).then_some(batch)).collect();
        let forward = |model: &BurnModel<M>, batch: Batch, pass: &CrossShardPass| {
            std::thread::sleep(pause);
            model.loss(
                batch,
                &TrainingContext { dropout: &key(pass.shard()), cross_shard: Some(pass), device },
            )
        };
        Ok(self.ddp.cross_shard_passes(inputs, forward)?)
    }

    /// This rank's batches of some steps of an epoch, prepared ahead.
    fn batches(&self, epoch: usize, steps: Range<usize>) -> Result<Prefetch, Error> {
        let order = Arc::new(self.sampler.epoch(epoch));
        let shards = self.ddp.shards();
        let requests = steps.flat_map(move |step| {
            let order = order.clone();
            let request =
                move |shard| Request { indices: order.shard(step, shard).to_vec(), epoch: epoch as u64 };
            shards.clone().map(request)
        });
        let seed = self.job.config.augment.then_some(self.job.config.seed);
        let (data, pause) = (self.job.data.clone(), self.pause(Work::Data));
        let prepare = move |Request { indices, epoch }| {
            std::thread::sleep(pause);
            data.batch(Part::Train, &indices, seed.map(|seed| AugmentKey { seed, epoch }))
        };
        Ok(Prefetch::new(requests, AHEAD, prepare)?)
    }

    /// For how long this rank sleeps at such work, if it is made slow.
    fn pause(&self, work: Work) -> Duration {
        Slowdown::pause(self.job.slowdown.as_ref(), self.ddp.rank().0, work)
    }
}
