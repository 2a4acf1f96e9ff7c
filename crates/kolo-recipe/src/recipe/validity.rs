//! Checks of a recipe, which need neither the model nor the data.

use kolo_ddp::table::Value;
use kolo_ddp::{apportion, optimizer};

use super::Recipe;
use super::check::{at_most_a_sample, below_1, check_bucket_cap, count, greater_than_0, steps, steps_or_0};
use crate::error::Error;

impl Recipe {
    /// Checks all settings that need neither the model nor the data.
    ///
    /// # Errors
    ///
    /// The first invalid setting, with its value.
    pub fn check(&self) -> Result<(), Error> {
        count("--epochs", self.epochs)?;
        steps("--steps", self.steps)?;
        count("--batch-size", self.batch_size)?;
        count("--nproc", self.nproc)?;
        count("--shards", self.shards)?;
        count("--checkpoint-epochs", self.checkpoint_epochs)?;
        steps("--checkpoint-steps", self.checkpoint_steps)?;
        steps_or_0("--verify-every", self.verify_every)?;
        steps_or_0("--backup-steps", self.backup_steps)?;
        count("--redundancy", self.redundancy)?;
        count("--keep-checkpoints", self.keep_checkpoints)?;
        steps("--eval-steps", self.eval_steps)?;
        greater_than_0("--max-hours", self.max_hours)?;
        count("--patience", self.patience)?;
        count("--test-batch-size", self.test_batch_size)?;
        check_bucket_cap(self.bucket_cap_mb)?;
        below_1("--dropout", self.dropout)?;
        self.device()?;
        self.input.check()?;
        self.optimizer.check()?;
        self.check_freeze()?;
        self.check_init_skip()?;
        self.check_groups(optimizer::find(&self.optimizer.0.name)?)?;
        self.transforms.check()?;
        self.reduction()?;
        self.precision.check()?;
        self.rate.check()?;
        self.large_batch.check(self.epochs)?;
        self.straggler()?;
        self.check_noise_scale()?;
        self.check_ema()?;
        greater_than_0("--mixup", self.mixup)?;
        greater_than_0("--cutmix", self.cutmix)?;
        self.sync.check(self)?;
        self.check_sharding()?;
        if self.threads != 1 {
            let problem = "a worker computes on 1 thread; raise --nproc";
            return Err(Error::setting("threads =", self.threads, problem));
        }
        Ok(())
    }

    /// Checks `--shares` against the number of workers, which another launcher may have decided.
    ///
    /// # Errors
    ///
    /// There is not one weight for each worker, or a weight is invalid.
    pub fn check_shares(&self) -> Result<(), Error> {
        let Some(weights) = &self.shares else { return Ok(()) };
        let given =
            weights.iter().map(|weight| Value::Number(*weight).to_string()).collect::<Vec<_>>().join(",");
        let wrong = |problem| Error::setting("--shares", given, problem);
        apportion(self.shards, weights, self.nproc).map(drop).map_err(wrong)
    }

    /// Checks the settings that depend on the number of training samples.
    ///
    /// # Errors
    ///
    /// There are more shards than samples.
    pub fn check_samples(&self, samples: usize) -> Result<(), Error> {
        at_most_a_sample(self.shards, samples)
    }
}
