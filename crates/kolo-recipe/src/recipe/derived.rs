//! Consequences of a recipe: the steps of its run, their learning rates, and the configuration of its
//! replicas.

use std::sync::Arc;

use kolo_ddp::reduction::{self, Reducer};
use kolo_ddp::straggler::Policy;
use kolo_ddp::{BucketCaps, Sampler, Statistics};

use super::{BatchNormalization, Recipe, StepRates, check};
use crate::error::Error;

/// Names of learning rates that follow from several settings.
const SCALED_RATE: &str = "--lr, scaled to the batch and the group,";
const LAST_RATE: &str = "--lr at the last step, scaled to the batch and the group,";

impl Recipe {
    /// Returns the policy for a worker that slows the others down.
    ///
    /// # Errors
    ///
    /// There is no policy of that name; lists the known ones.
    pub fn straggler(&self) -> Result<Policy, Error> {
        let found = Policy::ALL.iter().find(|(name, _)| *name == self.straggler);
        let unknown = || Error::unknown("--straggler", &self.straggler, Policy::ALL.map(|(name, _)| name));
        found.map(|(_, policy)| *policy).ok_or_else(unknown)
    }

    /// Returns the reduction, after a check that it fits the optimizer.
    pub(super) fn reduction(&self) -> Result<Arc<dyn Reducer>, Error> {
        let given = || self.reduction.clone();
        let reduction =
            reduction::parse(&self.reduction).map_err(|error| Error::Reduction { given: given(), error })?;
        let refused = |problem| Error::setting("--reduction", &self.reduction, problem);
        let problem = match self.sync.mode.traits().rounds {
            Some(rounds) => rounds.obstacle(&*reduction)?,
            // The replica compares the program's own optimizer with the reduction.
            None if self.own.optimizer.is_some() => None,
            None => reduction.fits(&*self.optimizer.build()?, &[]).err(),
        };
        problem.map_or(Ok(reduction), |problem| Err(refused(problem)))
    }

    /// Returns ` on ` and the name of the data set; nothing if it has no name.
    pub fn on_data(&self) -> String {
        if self.data.is_empty() { String::new() } else { format!(" on {}", self.data) }
    }

    /// Returns the number of steps of the run.
    pub fn total_steps(&self, sampler: &Sampler) -> u64 {
        let all = sampler.steps_before(self.epochs);
        self.steps.map_or(all, |limit| limit.min(all))
    }

    /// Returns the learning rate of each step.
    ///
    /// # Errors
    ///
    /// A rate is invalid after it is scaled: to the batch, by a group or by the schedule.
    pub fn rate(&self, sampler: &Sampler) -> Result<StepRates, Error> {
        let rates = self.rate.over(self.epochs, sampler);
        let last = rates.at(self.total_steps(sampler).saturating_sub(1));
        // A scale of 0 freezes a tensor on purpose.
        let scales = self.all_groups().into_iter().filter_map(|group| group.lr_scale);
        for scale in scales.filter(|scale| *scale != 0.0).chain([1.0]) {
            check::rate(SCALED_RATE, rates.top() * scale)?;
            // The rate may fall to 0, but not rise to infinity.
            if !((last * scale) as f32).is_finite() {
                check::rate(LAST_RATE, last * scale)?;
            }
        }
        Ok(rates)
    }

    /// Returns true if shards go through a step together, because its normalizations are over the global
    /// batch.
    pub fn in_step(&self) -> bool {
        self.batch_norm == BatchNormalization::Sync
    }

    /// Returns the configuration of the run's replicas.
    ///
    /// # Errors
    ///
    /// A setting has an invalid value.
    pub fn ddp(&self) -> Result<kolo_ddp::Config, Error> {
        Ok(kolo_ddp::Config {
            // In step, all shards have the same statistics.
            statistics: match self.batch_norm {
                BatchNormalization::PerShard | BatchNormalization::Sync => Statistics::PerShard,
                BatchNormalization::Local => Statistics::Local,
            },
            straggler: self.straggler()?,
            shares: self.shares.clone(),
            verify_every: self.verify_every,
            shards: Some(self.shards),
            caps: self.bucket_cap_mb.map(BucketCaps::of_mib),
            tune: self.tune,
            transforms: self.transforms.0.clone(),
            groups: self.all_groups(),
            reduction: self.reduction()?,
            backup_every: self.backup_steps,
            sharding: self.sharding()?,
            redundancy: self.redundancy,
            offload: self.offload.clone(),
            noise_scale: self.noise_scale,
            loss_scaling: self.precision.loss_scaling()?,
            sync: self.sync.mode.clone(),
            islands: self.sync.islands,
            ..kolo_ddp::Config::default()
        })
    }
}
