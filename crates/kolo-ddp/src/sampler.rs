//! Which samples belong to which shard of which step.
//!
//! The order of samples is a function of (seed, epoch) alone and a shard is a slice of a step's batch, so who
//! works on a shard changes nothing. There is no `set_epoch` to forget: an epoch's order is asked for by its
//! number.

use kolo_comm::Rank;
use kolo_comm::tree::share;

use crate::error::Error;
use crate::key::Key;
use crate::replica::Replica;

/// Divides a data set into epochs, steps and shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampler {
    samples: usize,
    batch: usize,
    shards: usize,
    seed: u64,
}

impl Sampler {
    /// `batch` samples a shard, `shards` shards a step. In a job it is [`Ddp::sampler`](crate::Ddp::sampler),
    /// which knows the shards and compares the numbers of the ranks.
    ///
    /// # Errors
    ///
    /// A count of zero is named.
    pub fn new(samples: usize, batch: usize, shards: usize, seed: u64) -> Result<Self, Error> {
        for (count, name) in
            [(samples, "the number of samples"), (batch, "the batch size"), (shards, "shards")]
        {
            if count == 0 {
                return Err(Error::Setting(format!("{name} is 0; it must be at least 1")));
            }
        }
        Ok(Sampler { samples, batch, shards, seed })
    }

    /// Samples in a full step.
    pub fn global_batch(&self) -> usize {
        self.batch * self.shards
    }

    /// Steps in an epoch; the last one may be short.
    pub fn steps(&self) -> usize {
        self.samples.div_ceil(self.global_batch())
    }

    /// The order of one epoch.
    pub fn epoch(&self, epoch: usize) -> Epoch {
        let mut order: Vec<usize> = (0..self.samples).collect();
        let key = Key::new(self.seed).with_str("order").with(epoch as u64);
        // Fisher and Yates, as in Knuth, The Art of Computer Programming, 3.4.2, algorithm P.
        for last in (1..order.len()).rev() {
            order.swap(last, key.with(last as u64).below(last + 1));
        }
        Epoch { sampler: self.clone(), order }
    }
}

impl Replica {
    /// Divides a data set among this job's shards, `batch` samples each. The next step compares the three
    /// numbers with those of the other ranks, so every rank asks for it alike; asked for again, the last one
    /// counts. A data set of one rank's own is divided by [`Sampler::new`].
    ///
    /// # Errors
    ///
    /// A count of zero is named.
    pub fn sampler(&mut self, samples: usize, batch: usize, seed: u64) -> Result<Sampler, Error> {
        let sampler = Sampler::new(samples, batch, self.shares().iter().sum(), seed)?;
        for (what, value) in [
            ("number of samples", samples.to_string()),
            ("batch size", batch.to_string()),
            ("seed", seed.to_string()),
        ] {
            self.note_setting(&format!("the sampler's {what}"), value);
        }
        Ok(sampler)
    }
}

/// One pass over the data set.
#[derive(Clone, Debug)]
pub struct Epoch {
    sampler: Sampler,
    order: Vec<usize>,
}

impl Epoch {
    /// The samples of one shard of one step. A short last batch is divided evenly; a shard may then be empty.
    pub fn shard(&self, step: usize, shard: usize) -> &[usize] {
        let Sampler { samples, shards, .. } = self.sampler;
        let batch = self.sampler.global_batch();
        let (start, end) = ((step * batch).min(samples), ((step + 1) * batch).min(samples));
        let slice = share(end - start, shards, Rank(shard));
        &self.order[start + slice.start..start + slice.end]
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
                steps.flat_map(|step| (0..shards).flat_map(move |s| epoch.shard(step, s).to_vec())).collect()
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
    fn zero_is_named() {
        assert!(Sampler::new(10, 0, 1, 0).unwrap_err().to_string().contains("batch size is 0"));
    }
}
