//! What a run is: everything needed to repeat it. Written to `config.toml`, read back by `--resume` and
//! `--config`.

use std::path::Path;

use crate::models;
use kolo_data::Dataset;
use kolo_ddp::optimizer;
use kolo_ddp::rate::{Decay, Rate, scale_linearly};
use kolo_ddp::straggler::Policy;
use kolo_ddp::table::Choice;
use kolo_ddp::transform;
use kolo_ddp::{BucketCaps, Sampler, Statistics, apportion};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::slow::Slow;

/// The whole configuration of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Version of Kolo that wrote it.
    pub kolo: String,
    /// Name of the network, of [`MODELS`](crate::models::MODELS).
    pub model: String,
    /// The data set, as `kolo_data::open` takes it.
    pub data: String,
    /// Whether training images are altered at random.
    pub augment: bool,
    /// Passes over the training data.
    pub epochs: usize,
    /// Ends the run after that many steps.
    pub steps: Option<u64>,
    /// Seed of weights, order, augmentation and dropout.
    pub seed: u64,
    /// Samples a shard.
    pub batch_size: usize,
    /// Shards a step. Together with the batch size it is the global batch, whatever the number of workers.
    pub shards: usize,
    /// Workers the run was started with. Does not change its result.
    pub nproc: usize,
    /// How the shards are divided among that many workers: a weight for each. Does not change the result.
    pub shares: Option<Vec<f64>>,
    /// What becomes of a worker that holds the others up: `warn`, `rebalance` or `drop`. Does not change the
    /// result.
    #[serde(default = "warn")]
    pub straggler: String,
    /// Workers that a slow one may not leave alone with fewer.
    #[serde(skip)]
    pub min: usize,
    /// A worker that is made slow, for trials.
    #[serde(skip)]
    pub slow: Option<Slow>,
    /// Threads that compute in each worker. Part of the job, because kernels may round differently with more.
    pub threads: usize,
    /// Largest bucket in MiB; `None`: 25, over sockets 4. Does not change the result.
    pub bucket_cap_mb: Option<f64>,
    /// Share of the features before the classifier that a training step drops.
    #[serde(default)]
    pub dropout: f64,
    /// `per-shard`, `sync` or `local`.
    #[serde(default = "per_shard")]
    pub batch_norm: String,
    /// Steps between two comparisons of all workers' weights. Does not change the result.
    #[serde(default)]
    pub verify_every: u64,
    /// Epochs between checkpoints.
    pub checkpoint_epochs: usize,
    /// Steps between checkpoints, besides those between epochs.
    pub checkpoint_steps: Option<u64>,
    /// How many of the last checkpoints are kept.
    #[serde(default = "keep")]
    pub keep_checkpoints: usize,
    /// Which optimizer, and how it is set.
    pub optimizer: Choice,
    /// What is done to the gradient before the optimizer sees it, one after another.
    #[serde(default)]
    pub transforms: Vec<Choice>,
    /// The learning rate over the run.
    pub rate: RateConfig,
}

/// The learning rate over a run: it rises, then falls as the schedule says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateConfig {
    /// The highest learning rate, as stated for `base_batch`.
    pub lr: f64,
    /// Applies the linear scaling rule from this global batch to the real one.
    pub base_batch: Option<usize>,
    /// `constant`, `step` or `cosine`.
    pub schedule: String,
    /// Steps over which the learning rate rises from 0.
    pub warmup_steps: u64,
    /// Epochs between the cuts of `step`.
    pub step_epochs: usize,
    /// What a cut of `step` leaves of the learning rate.
    pub step_factor: f64,
}

/// Checkpoints that are kept where nobody says how many.
pub const KEEP: usize = 3;

fn keep() -> usize {
    KEEP
}

/// What runs did before there was a choice.
fn warn() -> String {
    Policy::ALL[0].0.into()
}

/// The policies for batch normalisation, as named on the command line: what becomes of running statistics.
/// Those of [`SYNC`] come from the global batch, and all shards tell the same.
pub const BATCH_NORM: [(&str, Statistics); 3] =
    [("per-shard", Statistics::PerShard), (SYNC, Statistics::PerShard), ("local", Statistics::Local)];

/// Each batch normalisation is over the global batch.
const SYNC: &str = "sync";

/// What runs did before there was a choice.
fn per_shard() -> String {
    BATCH_NORM[0].0.into()
}

/// The schedules, as named on the command line.
pub const SCHEDULES: [&str; 3] = ["constant", "step", "cosine"];

/// Refuses a bucket size that is none.
pub fn check_bucket_cap(mib: Option<f64>) -> Result<(), Error> {
    match mib {
        Some(mib) if !(mib > 0.0 && mib.is_finite()) => {
            Err(Error::setting("--bucket-cap-mb", mib, "it must be greater than 0"))
        }
        _ => Ok(()),
    }
}

impl TrainConfig {
    /// Checks all that can be checked without data.
    ///
    /// # Errors
    ///
    /// The first setting that cannot be, with its value.
    pub fn check(&self) -> Result<(), Error> {
        models::find(&self.model)?;
        let optimizer = optimizer::find(&self.optimizer.name)?;
        optimizer.complete(&self.optimizer.settings)?;
        for Choice { name, settings } in &self.transforms {
            let transform = transform::find(name)?;
            transform.complete(settings)?;
        }
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
            return Err(Error::setting(name, 0, "it must be at least 1"));
        }
        check_bucket_cap(self.bucket_cap_mb)?;
        let real = [
            ("--lr", self.rate.lr, self.rate.lr > 0.0),
            ("--lr-factor", self.rate.step_factor, self.rate.step_factor > 0.0),
        ];
        if let Some((name, value, _)) = real.iter().find(|(_, value, right)| !right || !value.is_finite()) {
            return Err(Error::setting(name, value, "it must be greater than 0"));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(Error::setting("--dropout", self.dropout, "it must be at least 0 and below 1"));
        }
        if self.threads != 1 {
            let problem = "a worker computes on 1 thread; raise --nproc";
            return Err(Error::setting("threads =", self.threads, problem));
        }
        self.statistics()?;
        self.straggler()?;
        if !SCHEDULES.contains(&self.rate.schedule.as_str()) {
            return Err(Error::unknown("schedule", &self.rate.schedule, SCHEDULES));
        }
        Ok(())
    }

    /// Reads a configuration from a file and checks it.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or a field is unknown, missing or cannot have its value.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let fail = |problem: &dyn std::fmt::Display| Error::Config {
            path: path.to_owned(),
            problem: problem.to_string(),
        };
        let text = std::fs::read_to_string(path).map_err(|e| fail(&e))?;
        let config: TrainConfig = toml::from_str(&text).map_err(|e| fail(&e))?;
        config.check()?;
        Ok(config)
    }

    /// The configuration as the text of a `config.toml`.
    ///
    /// # Errors
    ///
    /// A value that TOML cannot express.
    pub fn to_toml(&self) -> Result<String, Error> {
        toml::to_string(self).map_err(|e| Error::Encode { what: "the configuration", problem: e.to_string() })
    }

    pub(crate) fn sampler(&self, dataset: &Dataset) -> Result<Sampler, Error> {
        Sampler::new(dataset.train.len(), self.batch_size, self.shards, self.seed).map_err(Error::Refused)
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

    fn statistics(&self) -> Result<Statistics, Error> {
        let found = BATCH_NORM.iter().find(|(name, _)| *name == self.batch_norm);
        found
            .map(|(_, policy)| *policy)
            .ok_or_else(|| Error::unknown("--batch-norm", &self.batch_norm, BATCH_NORM.map(|(name, _)| name)))
    }

    /// Whether shards go through a step together, because its normalisations are over the global batch.
    pub(crate) fn in_step(&self) -> bool {
        self.batch_norm == SYNC
    }

    /// What becomes of a worker that holds the others up.
    pub fn straggler(&self) -> Result<Policy, Error> {
        match Policy::ALL.iter().find(|(name, _)| *name == self.straggler) {
            Some((_, policy)) => Ok(*policy),
            None => Err(Error::unknown("--straggler", &self.straggler, Policy::ALL.map(|(name, _)| name))),
        }
    }

    /// Other workers than the configuration was made for get equal shares, unless new weights come with them.
    pub fn run_by(&mut self, nproc: Option<usize>) {
        let nproc = nproc.unwrap_or(self.nproc);
        self.shares = self.shares.take().filter(|_| nproc == self.nproc);
        self.nproc = nproc;
    }

    /// Checks `--shares` against the number of workers, which another launcher may have decided.
    pub fn check_shares(&self) -> Result<(), Error> {
        let Some(weights) = &self.shares else { return Ok(()) };
        let given = weights.iter().map(f64::to_string).collect::<Vec<_>>().join(",");
        let wrong = |problem| Error::setting("--shares", given, problem);
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
            transforms: self.transforms.clone(),
            ..kolo_ddp::Config::default()
        }
    }
}
