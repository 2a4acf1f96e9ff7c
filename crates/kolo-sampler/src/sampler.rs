//! Assignment of samples to the shards of each step.
//!
//! The order of samples is a function of (seed, epoch) alone and a shard is a slice of a step's batch, so
//! the rank that computes a shard makes no difference. There is no `set_epoch` to forget: each epoch's order
//! is a function of its number.

use kolo_schedule::Rank;
use kolo_schedule::tree::share;

use crate::batch_growth::{BatchGrowth, Segment, segments, steps_after};
use crate::key::Key;
use crate::order::Order;

/// An invalid count or growth of the batch, as a message that names it.
///
/// ```
/// use kolo_sampler::Sampler;
///
/// let sampler = Sampler::new(10, 2, 2, 0)?; // 10 samples, 2 for each of 2 shards, seed 0
/// assert_eq!((sampler.global_batch(), sampler.steps()), (4, 3));
/// let order = sampler.epoch(0);
/// let mut seen: Vec<usize> =
///     (0..3).flat_map(|step| [order.shard(step, 0), order.shard(step, 1)].concat()).collect();
/// seen.sort();
/// assert_eq!(seen, (0..10).collect::<Vec<_>>());
/// # Ok::<(), kolo_sampler::SamplerError>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SamplerError(String);

/// Divides a data set into epochs, steps and shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampler {
    samples: usize,
    shards: usize,
    seed: u64,
    /// At least one, and the first begins with the run.
    segments: Vec<Segment>,
}

impl Sampler {
    /// Divides `samples` into `batch` samples a shard, `shards` shards a step. In a job use
    /// `Ddp::sampler`, which knows the shards and compares the numbers of the ranks.
    ///
    /// # Errors
    ///
    /// A count is zero; the error names it.
    pub fn new(samples: usize, batch: usize, shards: usize, seed: u64) -> Result<Self, SamplerError> {
        Self::growing(samples, batch, &[], shards, seed)
    }

    /// Divides a data set as [`Sampler::new`] does, for a batch that grows between epochs. In a job use
    /// `Ddp::growing_sampler`.
    ///
    /// # Errors
    ///
    /// A count is zero, or a growth is invalid: its factor is below 2, it does not come after the one before
    /// it, or the batch is too large for an integer. The error names it.
    pub fn growing(
        samples: usize,
        batch: usize,
        growth: &[BatchGrowth],
        shards: usize,
        seed: u64,
    ) -> Result<Self, SamplerError> {
        for (count, name) in
            [(samples, "the number of samples"), (batch, "the batch size"), (shards, "shards")]
        {
            if count == 0 {
                return Err(SamplerError(format!("{name} is 0; it must be at least 1")));
            }
        }
        let segments = segments(samples, batch, growth, shards).map_err(SamplerError)?;
        Ok(Sampler { samples, shards, seed, segments })
    }

    /// Samples in a full step of the first epoch, and of every epoch if the batch does not grow.
    pub fn global_batch(&self) -> usize {
        self.global_batch_of(0)
    }

    /// Samples in a full step of an epoch, from 0.
    pub fn global_batch_of(&self, epoch: usize) -> usize {
        self.of(epoch).batch * self.shards
    }

    /// Steps in the first epoch, and in every epoch if the batch does not grow; the last one may be short.
    pub fn steps(&self) -> usize {
        self.steps_of(0)
    }

    /// Steps in an epoch, from 0; the last one may be short.
    pub fn steps_of(&self, epoch: usize) -> usize {
        self.of(epoch).steps
    }

    /// Steps before an epoch, from 0: those of the first `epoch` epochs.
    pub fn steps_before(&self, epoch: usize) -> u64 {
        let segment = self.of(epoch);
        steps_after(segment.first_step, epoch - segment.first_epoch, segment.steps)
    }

    /// The epoch of a step of the whole run and its number in that epoch, all from 0.
    pub fn position(&self, step: u64) -> (usize, usize) {
        let after = self.segments.partition_point(|segment| segment.first_step <= step);
        let Segment { first_epoch, first_step, steps, .. } = self.segments[after - 1];
        let (gone, steps) = (step - first_step, steps as u64);
        (first_epoch + (gone / steps) as usize, (gone % steps) as usize)
    }

    /// Amount of work before a step of the whole run, in steps of the first epoch: the step's own number,
    /// until the batch grows. Schedules of the learning rate depend on it.
    pub fn work_before(&self, step: u64) -> f64 {
        let (epoch, step) = self.position(step);
        let first = self.steps() as f64;
        epoch as f64 * first + step as f64 * first / self.steps_of(epoch) as f64
    }

    fn of(&self, epoch: usize) -> &Segment {
        let after = self.segments.partition_point(|segment| segment.first_epoch <= epoch);
        &self.segments[after - 1]
    }

    /// The order of one epoch.
    pub fn epoch(&self, epoch: usize) -> Epoch {
        let order = Order::new(self.samples, Key::new(self.seed).with_str("order").with(epoch as u64));
        Epoch { samples: self.samples, shards: self.shards, batch: self.global_batch_of(epoch), order }
    }
}

/// One pass over the data set.
#[derive(Clone, Debug)]
pub struct Epoch {
    samples: usize,
    shards: usize,
    /// Samples in a full step.
    batch: usize,
    order: Order,
}

impl Epoch {
    /// The samples of one shard of one step. A short last batch is divided evenly; a shard may then be
    /// empty.
    pub fn shard(&self, step: usize, shard: usize) -> Vec<usize> {
        let Epoch { samples, shards, batch, .. } = *self;
        let first = |step: usize| step.saturating_mul(batch).min(samples);
        let (start, end) = (first(step), first(step.saturating_add(1)));
        let slice = share(end - start, shards, Rank(shard));
        self.order.at(start + slice.start..start + slice.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_once_an_epoch_in_an_order_of_its_own() {
        for (samples, batch, shards) in [(1000, 8, 4), (1003, 8, 4), (5, 8, 4), (1, 1, 3), (64, 16, 1)] {
            let sampler = Sampler::new(samples, batch, shards, 7).unwrap();
            let collect = |epoch: &Epoch| -> Vec<usize> {
                let steps = 0..sampler.steps();
                steps.flat_map(|step| (0..shards).flat_map(move |s| epoch.shard(step, s))).collect()
            };
            let (first, again, second) = (sampler.epoch(0), sampler.epoch(0), sampler.epoch(1));
            assert_eq!(collect(&first), collect(&again));
            let mut sorted = collect(&first);
            sorted.sort();
            assert_eq!(sorted, (0..samples).collect::<Vec<_>>());
            assert!(samples < 10 || collect(&first) != collect(&second));
            let last = sampler.steps() - 1;
            let sizes: Vec<usize> = (0..shards).map(|shard| first.shard(last, shard).len()).collect();
            assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{sizes:?}");
            assert!(first.shard(sampler.steps(), 0).is_empty());
        }
    }

    #[test]
    fn a_batch_that_grows_covers_each_epoch_and_counts_on() {
        let growth = ["2:2", "3:5"].map(|text| text.parse::<BatchGrowth>().unwrap());
        // 12 samples a step, then 24, then 120: nine steps an epoch, five, one.
        let sampler = Sampler::growing(100, 3, &growth, 4, 7).unwrap();
        assert_eq!([0, 1, 2, 3, 9].map(|epoch| sampler.steps_of(epoch)), [9, 9, 5, 1, 1]);
        assert_eq!([0, 1, 2, 3, 9].map(|epoch| sampler.global_batch_of(epoch)), [12, 12, 24, 120, 120]);
        assert_eq!([0, 1, 2, 3, 4, 9].map(|epoch| sampler.steps_before(epoch)), [0, 9, 18, 23, 24, 29]);
        let mut step = 0;
        for epoch in 0..6 {
            let order = sampler.epoch(epoch);
            let mut seen: Vec<usize> = Vec::new();
            for in_epoch in 0..sampler.steps_of(epoch) {
                assert_eq!(sampler.position(step), (epoch, in_epoch));
                let work = 9.0 * (epoch as f64 + in_epoch as f64 / sampler.steps_of(epoch) as f64);
                assert!((sampler.work_before(step) - work).abs() < 1e-9);
                seen.extend((0..4).flat_map(|shard| order.shard(in_epoch, shard)));
                step += 1;
            }
            // In the order of a batch that does not grow.
            let constant = Sampler::new(100, 3, 4, 7).unwrap();
            assert_eq!(seen, constant.epoch(epoch).order.at(0..100));
        }
        let constant = Sampler::new(100, 3, 4, 7).unwrap();
        assert_eq!([0, 8, 9, 1000].map(|step| constant.work_before(step)), [0.0, 8.0, 9.0, 1000.0]);
    }

    #[test]
    fn zero_is_named() {
        assert!(Sampler::new(10, 0, 1, 0).unwrap_err().to_string().contains("batch size is 0"));
    }
}
