//! The recipe of a run: all that is needed to repeat it.
//!
//! The same structs are the options of the command line, the sections of a `config.toml`, and the input of
//! the trainer. Each field is a setting in all three places; the first paragraph of its doc comment is its
//! help text, and its default is in its attribute.

mod check;
mod choices;
mod defaults;
mod effects;
mod ema;
mod fields;
mod groups;
mod input;
mod large_batch;
mod layers;
mod noise_scale;
mod own;
mod precision;
mod rate;
mod stem;
mod sync;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use check::{at_most_a_sample, below_1, count, greater_than_0, is_finite, steps, steps_or_0};
use kolo_ddp::reduction::{self, REDUCTIONS, Reducer};
use kolo_ddp::straggler::Policy;
use kolo_ddp::table::{Value, parse_number};
use kolo_ddp::{BucketCaps, ParamGroup, Sampler, Selector, Statistics, apportion, optimizer};
use serde::{Deserialize, Serialize};

use crate::error::Error;

pub use check::check_bucket_cap;
pub use choices::{OptimizerChoice, TransformChoices};
pub use input::InputConfig;
pub use large_batch::LargeBatch;
pub use layers::RecipeOptions;
pub use own::OwnParts;
pub use precision::{PRECISIONS, PrecisionConfig};
pub use rate::{LearningRateSchedule, RateConfig, StepRates};
pub use stem::Stem;
pub use sync::SyncConfig;

/// The whole configuration of a run.
///
/// `Recipe::default()` is the run of `kolo train` without options.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Recipe {
    /// Version of Kolo that wrote the configuration.
    #[arg(skip = env!("CARGO_PKG_VERSION"))]
    pub kolo: String,
    /// Network (see below)
    #[arg(long, default_value = "small")]
    pub model: String,
    /// How images come into a residual network: imagenet (7×7 convolution with stride 2, then pooling) or
    /// small (3×3 with stride 1, for images of some 32 pixels) [default: imagenet; of the model small, small]
    #[arg(long, value_enum, hide_possible_values = true)]
    pub stem: Option<Stem>,
    /// Data set (see below)
    #[arg(long, default_value = "fashion-mnist-small")]
    pub data: String,
    /// Train on the images as they are, without random crop and flip
    #[arg(long = "no-augment", action = clap::ArgAction::SetFalse)]
    pub augment: bool,
    /// Blend the training images of a shard in pairs, and their labels, with shares of the distribution
    /// Beta(ALPHA, ALPHA)
    #[arg(long, value_name = "ALPHA", value_parser = parse_number)]
    pub mixup: Option<f64>,
    /// Replace a rectangle of each training image by one of another, with shares as in --mixup; with both,
    /// each shard's batch has one of them
    #[arg(long, value_name = "ALPHA", value_parser = parse_number)]
    pub cutmix: Option<f64>,
    /// Passes over the training data
    #[arg(long, default_value_t = 8)]
    pub epochs: usize,
    /// End after that many steps
    #[arg(long)]
    pub steps: Option<u64>,
    /// Seed of weights, order and augmentation
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Begin with the weights of this file, as `kolo export` writes it
    #[arg(long, value_name = "FILE")]
    pub init: Option<PathBuf>,
    /// With --init: tensors that keep their fresh values, as 'fc.*' where the number of classes is another;
    /// patterns and classes as in --group
    #[arg(long, value_name = "TENSORS", value_delimiter = ',')]
    pub init_skip: Vec<Selector>,
    /// Parameters that stay as they are, as 'layer1.*' (patterns and classes as in --group). So do the
    /// running statistics of a batch normalization of which all parameters are frozen
    #[arg(long, value_name = "TENSORS", value_delimiter = ',')]
    pub freeze: Vec<Selector>,
    /// Images a shard (a micro-batch of one worker)
    #[arg(long, default_value_t = 32)]
    pub batch_size: usize,
    /// Shards of a step. Together with the batch size they make the global batch, for any number of workers.
    #[arg(skip = WORKERS)]
    pub shards: usize,
    /// Number of workers at the start of the run. Does not change its result.
    #[arg(skip = WORKERS)]
    pub nproc: usize,
    /// Weights by which the shards are divided among that many workers. Do not change the result.
    #[arg(skip)]
    pub shares: Option<Vec<f64>>,
    /// Policy for a worker that slows the others down: `warn`, `rebalance` or `drop`. Does not change the
    /// result.
    #[arg(skip = Policy::ALL[0].0)]
    pub straggler: String,
    /// Threads that compute in each worker. Part of the recipe: kernels may round differently with more.
    #[arg(skip = 1_usize)]
    pub threads: usize,
    /// Largest bucket in MiB; the first and the last one have at most 1 [default: 25, over sockets 4]
    #[arg(long, value_parser = parse_number)]
    pub bucket_cap_mb: Option<f64>,
    /// Use the first steps to find the bucket cap, slices, algorithm and connections with which a step takes
    /// least, and keep them; begins with --bucket-cap-mb. Does not change the result
    #[arg(long)]
    pub tune: bool,
    /// How the gradients of all shards become what the optimizer sees (see below), as powersgd:rank=2
    #[arg(long, value_name = "NAME[:SETTINGS]", default_value = REDUCTIONS[0].name)]
    pub reduction: String,
    /// Where the reduction keeps something for each shard, or islands synchronize rarely: steps between
    /// copies on two more workers, to which the job goes back after a death; 0: what a worker kept dies with
    /// it. With --sync delayed: steps after which all updates are made
    #[arg(long, value_name = "STEPS", default_value_t = 100)]
    pub backup_steps: u64,
    /// Share of the features before the last layer that a training step drops
    #[arg(long, default_value_t = 0.0, value_parser = parse_number)]
    pub dropout: f64,
    /// Batch normalization: per-shard (by the shard's mean and variance), sync (by the global batch's), both
    /// the same for any --nproc, or local (as per-shard, with running statistics of each worker's own)
    #[arg(long, value_enum, hide_possible_values = true, default_value = "per-shard")]
    pub batch_norm: BatchNormalization,
    /// Steps between two comparisons of all workers' weights; 0: never
    #[arg(long, value_name = "STEPS", default_value_t = 100)]
    pub verify_every: u64,
    /// Tensors without weight decay, whatever --group says, as norm,bias (see below) or patterns of names
    #[arg(long, value_name = "TENSORS", value_delimiter = ',')]
    pub no_decay: Vec<Selector>,
    /// Tensors whose steps do not depend on their norms in LARS and LAMB, whatever --group says, as norm,bias
    #[arg(long, value_name = "TENSORS", value_delimiter = ',')]
    pub no_trust_ratio: Vec<Selector>,
    /// Keep a moving average of the weights with this decay, as 0.9999: it is what is evaluated, exported and
    /// the best. Training goes on with the weights themselves
    #[arg(long, value_name = "DECAY", value_parser = parse_number)]
    pub ema: Option<f64>,
    /// With --ema: a decay of at most (1 + t) / (10 + t) in step t, from 1
    #[arg(long)]
    pub ema_warmup: bool,
    /// Measure the noise scale of the gradient: how large a batch may be before more images a step bring
    /// little
    #[arg(long)]
    pub noise_scale: bool,
    /// Epochs between checkpoints
    #[arg(long, value_name = "EPOCHS", default_value_t = 1)]
    pub checkpoint_epochs: usize,
    /// Also write a checkpoint every so many steps
    #[arg(long, value_name = "STEPS")]
    pub checkpoint_steps: Option<u64>,
    /// Checkpoints to keep; older ones are removed
    #[arg(long, value_name = "CHECKPOINTS", default_value_t = 3)]
    pub keep_checkpoints: usize,
    /// Keep the checkpoint that is best by this metric as well, as `accuracy`: of the validation samples, or
    /// else of the test samples
    #[arg(long, value_name = "METRIC")]
    pub best_metric: Option<String>,
    /// Also evaluate every so many steps, besides the end of each epoch
    #[arg(long, value_name = "STEPS")]
    pub eval_steps: Option<u64>,
    /// Save and end after so many hours, counted from this start; --resume goes on
    #[arg(long, value_name = "HOURS", value_parser = parse_number)]
    pub max_hours: Option<f64>,
    /// End when so many epochs (with --eval-steps, evaluations) have passed without a better one, by
    /// --best-metric or else the first metric
    #[arg(long, value_name = "EPOCHS")]
    pub patience: Option<usize>,
    /// Samples of a forward pass in evaluation
    #[arg(long, value_name = "SAMPLES", default_value_t = 250)]
    pub test_batch_size: usize,
    /// The samples.
    #[command(flatten)]
    pub input: InputConfig,
    /// The optimizer and its settings.
    #[command(flatten)]
    pub optimizer: OptimizerChoice,
    /// The learning rate over the run.
    #[command(flatten)]
    pub rate: RateConfig,
    /// Settings with which larger batches train as well as small ones.
    #[command(flatten)]
    pub large_batch: LargeBatch,
    /// Type of the computations.
    #[command(flatten)]
    pub precision: PrecisionConfig,
    /// Transforms of the gradient before the optimizer's step.
    #[command(flatten)]
    pub transforms: TransformChoices,
    /// Synchronization of the shards.
    #[command(flatten)]
    pub sync: SyncConfig,
    /// Settings of the optimizer for some tensors, as 'fc.*:lr_scale=10,weight_decay=0' (see below); may be
    /// repeated, a later one wins
    #[arg(long = "group", value_name = "TENSORS:SETTINGS")]
    pub groups: Vec<ParamGroup>,
    /// Parts that the program brings itself, which its trainer sets.
    #[arg(skip)]
    #[serde(skip_serializing_if = "OwnParts::is_empty")]
    pub own: OwnParts,
}

/// Names of learning rates that follow from several settings.
const SCALED_RATE: &str = "--lr, scaled to the batch and the group,";
const LAST_RATE: &str = "--lr at the last step, scaled to the batch and the group,";

/// Default number of workers.
pub const WORKERS: usize = 2;

/// Samples over which batch normalization takes its mean and variance in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BatchNormalization {
    /// The shard; the step averages the shards' running statistics. Independent of the number of workers.
    PerShard,
    /// The global batch. Independent of the number of workers.
    Sync,
    /// The shard; each worker has running statistics of its own.
    Local,
}

impl Default for Recipe {
    fn default() -> Self {
        defaults::defaults()
    }
}

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
        count("--keep-checkpoints", self.keep_checkpoints)?;
        steps("--eval-steps", self.eval_steps)?;
        greater_than_0("--max-hours", self.max_hours)?;
        count("--patience", self.patience)?;
        count("--test-batch-size", self.test_batch_size)?;
        check_bucket_cap(self.bucket_cap_mb)?;
        below_1("--dropout", self.dropout)?;
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
        if self.threads != 1 {
            let problem = "a worker computes on 1 thread; raise --nproc";
            return Err(Error::setting("threads =", self.threads, problem));
        }
        Ok(())
    }

    /// Reads a configuration from a file and checks it. Fields that the file omits have their defaults.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or a field is unknown or has an invalid value.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let fail = |problem: &dyn std::fmt::Display| Error::Config {
            path: path.to_owned(),
            problem: problem.to_string(),
        };
        let text = kolo_durable::read_to_string(path).map_err(|e| fail(&e))?;
        let mut config: Recipe = toml::from_str(&text).map_err(|e| fail(&e))?;
        let table: toml::Table = toml::from_str(&text).map_err(|e| fail(&e))?;
        let says_shards = table.contains_key("shards");
        if !is_finite(&table.into()) {
            return Err(fail(&"a value is nan or inf; give a finite number"));
        }
        if !says_shards {
            // The command line's default, too: one shard for each worker.
            config.shards = config.nproc;
        }
        config.check()?;
        Ok(config)
    }

    /// Returns the configuration as the text of a `config.toml`.
    ///
    /// # Errors
    ///
    /// TOML cannot express a value.
    pub fn to_toml(&self) -> Result<String, Error> {
        toml::to_string(self).map_err(|e| Error::encode("the configuration", e))
    }

    /// Prepares a run for `nproc` workers, or for its own number of workers. A different number gets equal
    /// shares, unless the caller sets new weights.
    pub fn run_by(&mut self, nproc: Option<usize>) {
        let nproc = nproc.unwrap_or(self.nproc);
        self.shares = self.shares.take().filter(|_| nproc == self.nproc);
        self.nproc = nproc;
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
    fn reduction(&self) -> Result<Arc<dyn Reducer>, Error> {
        let given = || self.reduction.clone();
        let reduction =
            reduction::parse(&self.reduction).map_err(|error| Error::Reduction { given: given(), error })?;
        let refused = |problem| Error::setting("--reduction", &self.reduction, problem);
        let problem = match self.sync.mode.rounds() {
            Some(rounds) => rounds.obstacle(&*reduction)?,
            // The replica compares the program's own optimizer with the reduction.
            None if self.own.optimizer.is_some() => None,
            None => reduction.fits(&*self.optimizer.build()?, &[]).err(),
        };
        problem.map_or(Ok(reduction), |problem| Err(refused(problem)))
    }

    /// Checks the settings that depend on the number of training samples.
    ///
    /// # Errors
    ///
    /// There are more shards than samples.
    pub fn check_samples(&self, samples: usize) -> Result<(), Error> {
        at_most_a_sample(self.shards, samples)
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
            noise_scale: self.noise_scale,
            loss_scaling: self.precision.loss_scaling()?,
            sync: self.sync.mode.clone(),
            islands: self.sync.islands,
            ..kolo_ddp::Config::default()
        })
    }
}

#[cfg(test)]
mod extremes;
#[cfg(test)]
mod same_defaults;
#[cfg(test)]
mod tests;
