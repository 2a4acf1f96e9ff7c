//! Steps and learning rates of a recipe on a data set, known before the training.

use kolo_ddp::Sampler;

use crate::error::Error;
use crate::recipe::Recipe;

/// Steps and learning rates of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Samples of a step in the first epoch.
    pub global_batch: usize,
    /// Steps of the first epoch; later ones have fewer if the batch grows.
    pub epoch_steps: u64,
    /// Steps of all epochs, for which the learning rate is planned.
    pub planned_steps: u64,
    /// Steps of the run, which `--steps` may end earlier.
    pub steps: u64,
    /// Steps over which the learning rate rises.
    pub warmup_steps: u64,
    /// Learning rate after that, scaled to the batch if the recipe demands it.
    pub top_rate: f64,
    /// Learning rate of the last step.
    pub last_rate: f64,
}

impl Recipe {
    /// Returns the plan of the recipe on so many training samples.
    ///
    /// # Errors
    ///
    /// There are no samples, or the batch grows beyond the countable.
    pub fn plan(&self, samples: usize) -> Result<Plan, Error> {
        let growth = &self.large_batch.grow_batch;
        let sampler = Sampler::growing(samples, self.batch_size, growth, self.shards, self.seed);
        let sampler = sampler.map_err(|error| Error::Refused(error.into()))?;
        let (rates, steps) = (self.rate(&sampler)?, self.total_steps(&sampler));
        Ok(Plan {
            global_batch: sampler.global_batch(),
            epoch_steps: sampler.steps() as u64,
            planned_steps: sampler.steps_before(self.epochs),
            steps,
            warmup_steps: rates.warmup(),
            top_rate: rates.top(),
            last_rate: rates.at(steps.saturating_sub(1)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_run_is_planned_as_it_trains() {
        let recipe = Recipe { shards: 2, ..Recipe::default() };
        let plan = recipe.plan(10_000).unwrap();
        assert_eq!((plan.global_batch, plan.epoch_steps, plan.planned_steps), (64, 157, 1256));
        assert_eq!((plan.steps, plan.warmup_steps, plan.top_rate), (1256, 100, 0.1));
        assert!(plan.last_rate > 0.0 && plan.last_rate < 1e-6, "{plan:?}");
    }

    #[test]
    fn a_run_that_is_cut_short_keeps_its_plan() {
        let plan = Recipe { shards: 2, steps: Some(100), ..Recipe::default() }.plan(10_000).unwrap();
        assert_eq!((plan.steps, plan.planned_steps), (100, 1256));
        assert_eq!(plan.last_rate, plan.top_rate);
    }
}
