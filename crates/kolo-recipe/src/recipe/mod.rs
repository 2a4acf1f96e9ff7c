//! The recipe of a run: all that is needed to repeat it.
//!
//! The same structs are the options of the command line, the sections of a `config.toml`, and the input of
//! the trainer. Each field is a setting in all three places; the first paragraph of its doc comment is its
//! help text, and its default is in its attribute.

mod check;
mod choices;
mod defaults;
mod derived;
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
mod sharding;
mod stem;
mod sync;
mod validity;

use std::path::{Path, PathBuf};

use check::is_finite;
use kolo_ddp::reduction::REDUCTIONS;
use kolo_ddp::straggler::Policy;
use kolo_ddp::table::parse_number;
use kolo_ddp::{ParamGroup, Selector, Sharding};
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
/// `Recipe::default()` is the run of `kolo train` without options, but names no data set.
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
    /// Data set (see below) [default: fashion-mnist-small]
    // A program brings its own data: only `kolo train` has this default.
    #[arg(long, default_value = "", hide_default_value = true)]
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
    /// State of which each worker holds a part only: nothing, or optimizer (the optimizer's state; ZeRO stage 1).
    /// Does not change the result. A worker that dies ends the job then, and --resume goes on
    #[arg(long, value_name = "STATE", default_value = Sharding::ALL[0].0)]
    pub shard: String,
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
    /// Save and end after so many hours, counted from this start; --resume continues, for as long again or for
    /// another --max-hours
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
}

#[cfg(test)]
mod extremes;
#[cfg(test)]
mod same_defaults;
#[cfg(test)]
mod tests;
