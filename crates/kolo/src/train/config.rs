//! What a run is: everything needed to repeat it. Written to `config.toml`, read back by `--resume` and `--config`.

use std::path::Path;

use kolo_burn::data::Dataset;
use kolo_burn::models;
use kolo_ddp::optimizer::{self, Settings};
use kolo_ddp::rate::{Decay, Rate, scale_linearly};
use kolo_ddp::straggler::Policy;
use kolo_ddp::{BucketCaps, Sampler, Statistics, apportion};
use serde::{Deserialize, Serialize};

use super::slow::Slow;
use crate::fail::Failure;

/// The whole configuration of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrainConfig {
    /// Version of Kolo that wrote it.
    pub(crate) kolo: String,
    pub(crate) model: String,
    pub(crate) data: String,
    pub(crate) augment: bool,
    pub(crate) epochs: usize,
    /// Ends the run after that many steps.
    pub(crate) steps: Option<u64>,
    pub(crate) seed: u64,
    /// Samples a shard.
    pub(crate) batch_size: usize,
    /// Shards a step. Together with the batch size it is the global batch, whatever the number of workers.
    pub(crate) shards: usize,
    /// Workers the run was started with. Does not change its result.
    pub(crate) nproc: usize,
    /// How the shards are divided among that many workers: a weight for each. Does not change the result.
    pub(crate) shares: Option<Vec<f64>>,
    /// What becomes of a worker that holds the others up: `warn`, `rebalance` or `drop`. Does not change the result.
    #[serde(default = "warn")]
    pub(crate) straggler: String,
    /// Workers that a slow one may not leave alone with fewer.
    #[serde(skip)]
    pub(crate) min: usize,
    /// A worker that is made slow, for trials.
    #[serde(skip)]
    pub(crate) slow: Option<Slow>,
    /// Threads that compute in each worker. Part of the job, because kernels may round differently with more.
    pub(crate) threads: usize,
    pub(crate) bucket_cap_mb: Option<f64>,
    pub(crate) clip_norm: Option<f64>,
    /// Share of the features before the classifier that a training step drops.
    #[serde(default)]
    pub(crate) dropout: f64,
    /// `per-shard`, `sync` or `local`.
    #[serde(default = "per_shard")]
    pub(crate) batch_norm: String,
    /// Steps between two comparisons of all workers' weights. Does not change the result.
    #[serde(default)]
    pub(crate) verify_every: u64,
    pub(crate) checkpoint_epochs: usize,
    /// Steps between checkpoints, besides those between epochs.
    pub(crate) checkpoint_steps: Option<u64>,
    /// How many of the last checkpoints are kept.
    #[serde(default = "keep")]
    pub(crate) keep_checkpoints: usize,
    pub(crate) optimizer: OptimizerConfig,
    pub(crate) rate: RateConfig,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OptimizerConfig {
    pub(crate) name: String,
    pub(crate) settings: Settings,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RateConfig {
    /// As stated for `base_batch`.
    pub(crate) lr: f64,
    /// Applies the linear scaling rule from this global batch to the real one.
    pub(crate) base_batch: Option<usize>,
    /// `constant`, `step` or `cosine`.
    pub(crate) schedule: String,
    pub(crate) warmup_steps: u64,
    /// For `step`: epochs between cuts, and what a cut leaves.
    pub(crate) step_epochs: usize,
    pub(crate) step_factor: f64,
}

/// Checkpoints that are kept where nobody says how many.
pub(crate) const KEEP: usize = 3;

fn keep() -> usize {
    KEEP
}

/// What runs did before there was a choice.
fn warn() -> String {
    Policy::ALL[0].0.into()
}

/// The policies for batch normalisation, as named on the command line: what becomes of running statistics. Those of
/// [`SYNC`] come from the global batch, and all shards tell the same.
pub(crate) const BATCH_NORM: [(&str, Statistics); 3] =
    [("per-shard", Statistics::PerShard), (SYNC, Statistics::PerShard), ("local", Statistics::Local)];

/// Each batch normalisation is over the global batch.
const SYNC: &str = "sync";

/// What runs did before there was a choice.
fn per_shard() -> String {
    BATCH_NORM[0].0.into()
}

/// The schedules, as named on the command line.
pub(crate) const SCHEDULES: [&str; 3] = ["constant", "step", "cosine"];

/// Refuses a bucket size that is none.
pub(crate) fn check_bucket_cap(mib: Option<f64>) -> Result<(), Failure> {
    match mib {
        Some(mib) if !(mib > 0.0 && mib.is_finite()) => {
            Err(Failure::input(format!("--bucket-cap-mb {mib}: it must be greater than 0")))
        }
        _ => Ok(()),
    }
}

impl TrainConfig {
    /// Checks all that can be checked without data.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        models::find(&self.model).map_err(Failure::input)?;
        optimizer::find(&self.optimizer.name).map_err(Failure::input)?;
        let positive = [
            ("--batch-size", self.batch_size),
            ("--nproc", self.nproc),
            ("--shards", self.shards),
            ("--epochs", self.epochs),
            ("--checkpoint-epochs", self.checkpoint_epochs),
            ("--checkpoint-steps", self.checkpoint_steps.map_or(1, |steps| usize::from(steps > 0))),
            ("--keep-checkpoints", self.keep_checkpoints),
            ("--lr-step-epochs", self.rate.step_epochs),
            ("--base-batch", self.rate.base_batch.unwrap_or(1)),
            ("--steps", self.steps.map_or(1, |steps| usize::from(steps > 0))),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(Failure::input(format!("{name} 0: it must be at least 1")));
        }
        check_bucket_cap(self.bucket_cap_mb)?;
        let real = [
            ("--lr", self.rate.lr, self.rate.lr > 0.0),
            ("--clip-norm", self.clip_norm.unwrap_or(1.0), self.clip_norm.is_none_or(|norm| norm > 0.0)),
            ("--lr-factor", self.rate.step_factor, self.rate.step_factor > 0.0),
        ];
        if let Some((name, value, _)) = real.iter().find(|(_, value, right)| !right || !value.is_finite()) {
            return Err(Failure::input(format!("{name} {value}: it must be greater than 0")));
        }
        let fractions = [
            ("--momentum", self.optimizer.settings.momentum),
            ("--beta1", self.optimizer.settings.beta1),
            ("--beta2", self.optimizer.settings.beta2),
            ("--dropout", self.dropout as f32),
        ];
        if let Some((name, value)) = fractions.iter().find(|(_, value)| !(0.0..1.0).contains(value)) {
            return Err(Failure::input(format!("{name} {value}: it must be at least 0 and below 1")));
        }
        let decay = self.optimizer.settings.weight_decay;
        if !decay.is_finite() || decay < 0.0 {
            return Err(Failure::input(format!("--weight-decay {decay}: it must be 0 or more")));
        }
        if self.threads != 1 {
            let threads = self.threads;
            return Err(Failure::input(format!(
                "threads = {threads}: a worker computes on 1 thread; raise --nproc"
            )));
        }
        self.statistics()?;
        self.straggler()?;
        if !SCHEDULES.contains(&self.rate.schedule.as_str()) {
            let known = SCHEDULES.join(", ");
            return Err(Failure::input(format!(
                "unknown schedule `{}`; known are {known}",
                self.rate.schedule
            )));
        }
        Ok(())
    }

    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let fail = |problem: &dyn std::fmt::Display| Failure::input(format!("{}: {problem}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| fail(&e))?;
        let config: TrainConfig = toml::from_str(&text).map_err(|e| fail(&e))?;
        config.check()?;
        Ok(config)
    }

    pub(crate) fn to_toml(&self) -> Result<String, Failure> {
        toml::to_string(self).map_err(|e| Failure::work(format!("cannot write the configuration: {e}")))
    }

    pub(crate) fn sampler(&self, dataset: &Dataset) -> Result<Sampler, Failure> {
        Sampler::new(dataset.train.len(), self.batch_size, self.shards, self.seed).map_err(Failure::input)
    }

    /// Steps of the whole run.
    pub(crate) fn total_steps(&self, sampler: &Sampler) -> u64 {
        let all = (self.epochs * sampler.steps()) as u64;
        self.steps.map_or(all, |limit| limit.min(all))
    }

    pub(crate) fn rate(&self, sampler: &Sampler) -> Rate {
        let config = &self.rate;
        let decay = match config.schedule.as_str() {
            "constant" => Decay::Constant,
            "step" => {
                let every = (config.step_epochs * sampler.steps()) as u64;
                Decay::Step { every, factor: config.step_factor }
            }
            _ => Decay::Cosine,
        };
        let scaled = |batch| scale_linearly(config.lr, batch, sampler.global_batch());
        let base = config.base_batch.map_or(config.lr, scaled);
        Rate { base, decay, warmup: config.warmup_steps, total: (self.epochs * sampler.steps()) as u64 }
    }

    fn statistics(&self) -> Result<Statistics, Failure> {
        let found = BATCH_NORM.iter().find(|(name, _)| *name == self.batch_norm);
        found.map(|(_, policy)| *policy).ok_or_else(|| {
            let known = BATCH_NORM.map(|(name, _)| name).join(", ");
            Failure::input(format!("unknown --batch-norm `{}`; known are {known}", self.batch_norm))
        })
    }

    /// Whether shards go through a step together, because its normalisations are over the global batch.
    pub(crate) fn in_step(&self) -> bool {
        self.batch_norm == SYNC
    }

    /// What becomes of a worker that holds the others up.
    pub(crate) fn straggler(&self) -> Result<Policy, Failure> {
        match Policy::ALL.iter().find(|(name, _)| *name == self.straggler) {
            Some((_, policy)) => Ok(*policy),
            None => {
                let known = Policy::ALL.map(|(name, _)| name).join(", ");
                Err(Failure::input(format!("unknown --straggler `{}`; known are {known}", self.straggler)))
            }
        }
    }

    /// Other workers than the configuration was made for get equal shares, unless new weights come with them.
    pub(crate) fn run_by(&mut self, nproc: Option<usize>) {
        let nproc = nproc.unwrap_or(self.nproc);
        self.shares = self.shares.take().filter(|_| nproc == self.nproc);
        self.nproc = nproc;
    }

    /// Checks `--shares` against the number of workers, which another launcher may have decided.
    pub(crate) fn check_shares(&self) -> Result<(), Failure> {
        let Some(weights) = &self.shares else { return Ok(()) };
        let given = weights.iter().map(f64::to_string).collect::<Vec<_>>().join(",");
        let wrong = |problem| Failure::input(format!("--shares {given}: {problem}"));
        apportion(self.shards, weights, self.nproc).map(drop).map_err(wrong)
    }

    pub(crate) fn ddp(&self) -> kolo_ddp::Config {
        kolo_ddp::Config {
            // Checked when the configuration was.
            statistics: self.statistics().unwrap_or_default(),
            straggler: self.straggler().unwrap_or_default(),
            shares: self.shares.clone(),
            verify_every: self.verify_every,
            shards: Some(self.shards),
            caps: self.bucket_cap_mb.map(BucketCaps::of_mib),
            clip_norm: self.clip_norm,
            ..kolo_ddp::Config::default()
        }
    }
}
