//! The steps of an epoch: batches, shards, what follows each step.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::models::ResNet;
use kolo_burn::{DropoutKey, Loss, ShardPass};
use kolo_data::{AugmentKey, Batch, Normalise, Prefetch, Request};
use kolo_ddp::checkpoint::Position;
use kolo_ddp::straggler::{Policy, Straggler};
use kolo_ddp::{Change, StepReport};

use crate::course::Course;
use crate::desk::Desk;
use crate::error::Error;
use crate::meter::StepRow;
use crate::slow::{Slow, Work};
use crate::tensors::image_tensors;
use crate::worker::{Pause, Worker};

/// Batches prepared ahead.
const AHEAD: usize = 3;

impl Worker<'_> {
    /// Trains until the epoch or the run is over, or the members of the job have changed: then it says so.
    /// Moves the course.
    pub(crate) fn epoch(
        &mut self,
        course: &mut Course,
        desk: &mut Option<Desk>,
    ) -> Result<Option<Pause>, Error> {
        let steps = self.sampler.steps();
        let (epoch, first) = (course.position.epoch, course.position.step_in_epoch);
        let mut batches = self.batches(epoch, first..steps)?;
        for _ in first..steps {
            if course.is_over() {
                break;
            }
            let step = course.position.step;
            self.began = Instant::now();
            let rate = self.rate.at(step);
            if self.leaving.load(Ordering::Relaxed) {
                self.ddp.with_replica(|replica| replica.leave());
            }
            let report = self.step(&mut batches, &course.position, rate)?;
            if !report.loss.is_finite() {
                return Err(Error::Diverged { loss: report.loss, step });
            }
            let row = StepRow::new(step, epoch, rate, self.began.elapsed(), &report);
            course.add(row.clone());
            if let Some(desk) = desk {
                self.write_down(&row, &report, course, desk)?;
            }
            // In a group that has just changed it may have another rank.
            if let (Change::None, Some(straggler)) = (report.change, &report.straggler) {
                self.drop_or_keep(straggler)?;
            }
            match report.change {
                Change::None => {}
                Change::Regrouped => return Ok(Some(Pause::Regrouped)),
                Change::Left => return Ok(Some(Pause::Left)),
                // After the last step there is nothing to leave.
                Change::AllLeft if course.is_over() => {}
                Change::AllLeft => return Ok(Some(Pause::AllLeft)),
            }
            if report.shards_changed && course.position.step_in_epoch > 0 {
                batches = self.batches(epoch, course.position.step_in_epoch..steps)?;
            }
        }
        Ok(None)
    }

    /// What becomes of a rank that holds the others up, where it is not to be kept. All ranks know of it
    /// after the same step.
    fn drop_or_keep(&self, straggler: &Straggler) -> Result<(), Error> {
        if self.config.straggler()? != Policy::Drop {
            return Ok(());
        }
        let (Straggler { rank, reason, .. }, min) = (straggler, self.config.min);
        if self.ddp.group().world_size() > min {
            let reason = format!("{rank} is dropped: {reason}");
            self.ddp.with_replica(|replica| replica.leave_out(*rank, &reason));
        } else if self.ddp.rank().0 == 0 {
            log::warn!("{rank} stays: without it there would be fewer workers than --min {min}");
        }
        Ok(())
    }

    /// On rank 0, after each step.
    fn write_down(
        &self,
        row: &StepRow,
        report: &StepReport,
        course: &Course,
        desk: &mut Desk,
    ) -> Result<(), Error> {
        desk.step(row, &report.buckets, course)?;
        // A change has begun the next generation already.
        if report.change == Change::None {
            desk.generations.step_done(row.step)?;
        }
        let goes_on = course.position.step_in_epoch > 0 && !course.is_over();
        if goes_on && desk.checkpoints.due_within_epoch(&course.position) {
            desk.flush(course);
            desk.checkpoints.take(&self.ddp, course)?;
        }
        Ok(())
    }

    fn step(&mut self, batches: &mut Prefetch, position: &Position, rate: f64) -> Result<StepReport, Error> {
        let (seed, epoch, step) = (self.config.seed, position.epoch, position.step_in_epoch);
        let key = move |shard| DropoutKey { seed, epoch, step, shard };
        if self.config.in_step() {
            let inputs = self.ddp.shards().map(|_| self.batch(batches)).collect::<Result<Vec<_>, _>>()?;
            self.shards_in_step(inputs, key)?;
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

    fn shard(&mut self, batch: Batch, key: &DropoutKey) -> Result<(), Error> {
        std::thread::sleep(Slow::pause(self.config.slow.as_ref(), self.ddp.rank().0, Work::Compute));
        let count = batch.len();
        if count == 0 {
            return Ok(self.ddp.skip_shard()?);
        }
        let (images, labels) = image_tensors(batch, &self.device.clone().autodiff());
        let loss = self.criterion.forward(self.ddp.model().forward_training(images, key), labels);
        Ok(self.ddp.backward(Loss::mean(loss, count))?)
    }

    /// All of this rank's shards together, normalised over the global batch.
    fn shards_in_step(
        &mut self,
        inputs: Vec<Batch>,
        key: impl Fn(usize) -> DropoutKey + Sync,
    ) -> Result<(), Error> {
        let pause = Slow::pause(self.config.slow.as_ref(), self.ddp.rank().0, Work::Compute);
        let (device, criterion) = (self.device.clone().autodiff(), &self.criterion);
        let inputs = inputs.into_iter().map(|batch| (!batch.is_empty()).then_some(batch)).collect();
        let forward = |model: &ResNet, batch: Batch, pass: &ShardPass| {
            std::thread::sleep(pause);
            let count = batch.len();
            let (images, labels) = image_tensors(batch, &device);
            let scores = model.forward_in_step(images, &key(pass.shard()), pass);
            Loss::mean(criterion.forward(scores, labels), count)
        };
        Ok(self.ddp.in_step(inputs, forward)?)
    }

    /// This rank's batches of some steps of an epoch, prepared ahead.
    fn batches(&self, epoch: usize, steps: std::ops::Range<usize>) -> Result<Prefetch, Error> {
        let order = Arc::new(self.sampler.epoch(epoch));
        let shards = self.ddp.shards();
        let requests = steps.flat_map(move |step| {
            let order = order.clone();
            let request =
                move |shard| Request { indices: order.shard(step, shard).to_vec(), epoch: epoch as u64 };
            shards.clone().map(request)
        });
        let augment = self.config.augment.then_some((self.config.seed, self.dataset.augment));
        let (dataset, normalise) = (self.dataset.clone(), Normalise::of(&self.dataset));
        let pause = Slow::pause(self.config.slow.as_ref(), self.ddp.rank().0, Work::Data);
        let prepare = move |Request { indices, epoch }| {
            std::thread::sleep(pause);
            let key = augment.map(|(seed, augment)| AugmentKey { seed, epoch, augment });
            dataset.train.batch(&indices, &normalise, key.as_ref())
        };
        Ok(Prefetch::new(requests, AHEAD, prepare)?)
    }
}
