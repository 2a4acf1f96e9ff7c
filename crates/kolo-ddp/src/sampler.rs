//! Samplers of a job's shards, whose settings the ranks compare.

use kolo_sampler::{BatchGrowth, Sampler};

use crate::replica::Replica;
use kolo_reduction::Error;

impl Replica {
    /// Divides a data set among this job's shards, `batch` samples each. The next step compares the three
    /// numbers with those of the other ranks, so every rank calls it with the same; after several calls the
    /// last one applies. To divide a data set of this rank alone, use [`Sampler::new`].
    ///
    /// # Errors
    ///
    /// A count is zero; the error names it.
    pub fn sampler(&mut self, samples: usize, batch: usize, seed: u64) -> Result<Sampler, Error> {
        self.growing_sampler(samples, batch, &[], seed)
    }

    /// Divides a data set as [`Replica::sampler`] does, for a batch that grows between epochs. The ranks
    /// compare the growth as well. Fails as [`Sampler::growing`] does.
    pub fn growing_sampler(
        &mut self,
        samples: usize,
        batch: usize,
        growth: &[BatchGrowth],
        seed: u64,
    ) -> Result<Sampler, Error> {
        let sampler = Sampler::growing(samples, batch, growth, self.shares().iter().sum(), seed)?;
        let grows = growth.iter().map(BatchGrowth::to_string).collect::<Vec<_>>().join(",");
        for (what, value) in [
            ("number of samples", samples.to_string()),
            ("batch size", batch.to_string()),
            ("batch growth", if grows.is_empty() { "none".into() } else { grows }),
            ("seed", seed.to_string()),
        ] {
            self.note_setting(&format!("the sampler's {what}"), value);
        }
        Ok(sampler)
    }
}
