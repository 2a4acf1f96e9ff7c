//! The check of runs that measure the noise scale of their gradient.

use super::Recipe;
use crate::error::Error;

impl Recipe {
    /// Refuses to measure the noise scale if a step has only one batch size, or no sum of gradients.
    pub(super) fn check_noise_scale(&self) -> Result<(), Error> {
        if self.noise_scale && self.shards < 2 {
            let problem =
                "it is measured between two sizes of a batch, a shard's and a step's; take --shards 2";
            return Err(Error::setting("--noise-scale with --shards", self.shards, problem));
        }
        if self.noise_scale && !self.reduction()?.is_sum() {
            let problem = "it needs the sum of all gradients; take --reduction sum";
            return Err(Error::setting("--noise-scale with --reduction", &self.reduction, problem));
        }
        Ok(())
    }
}
