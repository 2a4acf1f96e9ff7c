//! The recipe of a run: all that is needed to repeat it.
//!
//! The same structs are the options of the command line, the sections of a `config.toml`, and the input of
//! the trainer. Each field is a setting in all three places; the first paragraph of its doc comment is its
//! help text, and its default is in its attribute.

mod check;
mod choices;
mod defaults;
mod derived;
mod device;
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
mod surprises;
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
pub use device::DEVICES;
pub use fields::SettingChange;
pub use input::InputConfig;
pub use large_batch::LargeBatch;
pub use layers::RecipeOptions;
pub use own::OwnParts;
pub use precision::{PRECISIONS, PrecisionConfig};
pub use rate::{LearningRateSchedule, RateConfig, StepRates};
pub use sharding::NeedsAll;
pub use stem::Stem;
pub use sync::SyncConfig;

/// The whole configuration of a run.
///
/// `Recipe::default()` is the run of `kolo train` without options, but names no data set.
///
/// ```
/// use kolo_recipe::Recipe;
///
/// let recipe = Recipe { epochs: 5, shards: 4, batch_size: 32, ..Recipe::default() };
/// assert_eq!(recipe.model, "small");
/// ```
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Recipe {
    /// Version of Kolo that wrote the configuration.
    #[arg(skip = env!("CARGO_PKG_VERSION"))]
    pub kolo: String,
    /// Network (see below). The models gpt2 have defaults of their own, which --print-config shows: AdamW
    /// with a learning rate by size, --batch-size 8, --no-decay 1d, and --clip-norm 1
    #[arg(long, default_value = "small")]
    pub model: String,
    /// First layers of a residual network: imagenet (a 7×7 convolution with stride 2, then pooling) or
    /// small (3×3 with stride 1, for images of about 32 pixels) [default: imagenet; small for the model
    /// small]
    #[arg(long, value_enum, hide_possible_values = true)]
    pub stem: Option<Stem>,
    /// Data set (see below) [default: fashion-mnist-small; kolo-documents for the models gpt2]
    // A program brings its own data: only `kolo train` has this default.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub data: String,
    /// Train on the images without random crops and flips
    #[arg(long = "no-augment", action = clap::ArgAction::SetFalse)]
    pub augment: bool,
    /// Blend pairs of training images and their labels, with weights drawn from Beta(ALPHA, ALPHA)
    #[arg(long, value_name = "ALPHA", value_parser = parse_number)]
    pub mixup: Option<f64>,
    /// Replace a rectangle of each training image with one from another image, with weights as in --mixup.
    /// With both options, each shard's batch gets one of the two
    #[arg(long, value_name = "ALPHA", value_parser = parse_number)]
    pub cutmix: Option<f64>,
    /// Passes over the training data
    #[arg(long, default_value_t = 8)]
    pub epochs: usize,
    /// Stop after this many steps
    #[arg(long)]
    pub steps: Option<u64>,
    /// Seed of weights, order and augmentation
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Start from these weights: what `kolo export` has written, a folder of transformers, a checkpoint, or a
    /// run folder, of which Kolo takes the newest weights
    #[arg(long, value_name = "PATH")]
    pub init: Option<PathBuf>,
    /// With --init: tensors that keep their new random values, such as 'fc.*' if your data has other
    /// classes. Takes patterns and classes, as --group does
    #[arg(long, value_name = "TENSORS", value_delimiter = ',')]
    pub init_skip: Vec<Selector>,
    /// Parameters that training does not change, such as 'layer1.*'. Takes patterns and classes, as --group
    /// does. A batch normalization whose parameters are all frozen keeps its running statistics
    #[arg(long, value_name = "TENSORS", value_delimiter = ',')]
    pub freeze: Vec<Selector>,
    /// Images per shard, or windows of a text. A shard is one micro-batch of one worker
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
    /// Device that computes: flex (Kolo's layers on the CPU), or cpu, cuda, rocm or wgpu in a build with the
    /// feature of that name. cuda:1 is the second one of a machine; without a number, its workers take turns.
    /// Kolo promises the same bits on flex only
    #[arg(long, value_name = "NAME[:NUMBER]", default_value = DEVICES[0])]
    pub device: String,
    /// Size limit of a bucket in MiB. The first and the last bucket have at most 1 MiB [default: 25; 4 over
    /// sockets and with --shard gradients or parameters]
    #[arg(long, value_parser = parse_number)]
    pub bucket_cap_mb: Option<f64>,
    /// Use the first steps to find the fastest bucket cap, slices, algorithm and connections, starting from
    /// --bucket-cap-mb. The result stays the same
    #[arg(long)]
    pub tune: bool,
    /// How Kolo combines the gradients of all shards (see below), for example powersgd:rank=2
    #[arg(long, value_name = "NAME[:SETTINGS]", default_value = REDUCTIONS[0].name)]
    pub reduction: String,
    /// State that Kolo divides among the workers: nothing, optimizer (the optimizer's state; ZeRO stage 1),
    /// gradients (these too; stage 2), or parameters (all; stage 3). If a worker dies, the job ends, and
    /// --resume continues it; see --redundancy. With host the workers have one copy of all state, in memory
    /// that they share, and the job continues. The result stays the same
    #[arg(long, value_name = "STATE", default_value = Sharding::ALL[0].0)]
    pub shard: String,
    /// Workers that hold each part of a divided state: 1 or 2. With 2 the job continues when a worker dies,
    /// leaves or joins, in the same bits
    #[arg(long, value_name = "WORKERS", default_value_t = 1)]
    pub redundancy: usize,
    /// Folder on a local disk for the optimizer's state, which each worker then has in a file instead of
    /// memory. The result stays the same
    #[arg(long, value_name = "FOLDER")]
    pub offload: Option<PathBuf>,
    /// Steps between copies of the state that only one worker holds (residuals, islands) to two other
    /// workers. After a death the job returns to the last copy; with 0 that state is lost. With --sync
    /// delayed: steps after which Kolo applies all pending updates
    #[arg(long, value_name = "STEPS", default_value_t = 100)]
    pub backup_steps: u64,
    /// Share of the features before the last layer that each training step drops; of a language model, of the
    /// outputs of all layers
    #[arg(long, default_value_t = 0.0, value_parser = parse_number)]
    pub dropout: f64,
    /// Keep only the input of each block of a language model for the backward pass, and compute the block a
    /// second time there: less memory, about a third more time. The result stays the same
    #[arg(long)]
    pub activation_checkpointing: bool,
    /// Statistics of batch normalization: per-shard (of each shard), sync (of the global batch) or local
    /// (per-shard, but each worker keeps its own running statistics). The first two give the same bits for
    /// any --nproc
    #[arg(long, value_enum, hide_possible_values = true, default_value = "per-shard")]
    pub batch_norm: BatchNormalization,
    /// Steps between comparisons of all workers' weights; 0 turns them off
    #[arg(long, value_name = "STEPS", default_value_t = 100)]
    pub verify_every: u64,
    /// Tensors without weight decay, such as norm,bias (see below) or patterns of names. Overrides --group
    #[arg(long, value_name = "TENSORS", value_delimiter = ',')]
    pub no_decay: Vec<Selector>,
    /// Tensors whose steps in LARS and LAMB do not depend on their norms, such as norm,bias. Overrides
    /// --group
    #[arg(long, value_name = "TENSORS", value_delimiter = ',')]
    pub no_trust_ratio: Vec<Selector>,
    /// Keep a moving average of the weights with this decay, for example 0.999 in a run of 10,000 steps. Kolo
    /// evaluates and exports the average, and picks the best checkpoint by it; training continues with the
    /// weights themselves
    #[arg(long, value_name = "DECAY", value_parser = parse_number)]
    pub ema: Option<f64>,
    /// With --ema: limit the decay to (1 + t) / (10 + t) in step t, counted from 1
    #[arg(long)]
    pub ema_warmup: bool,
    /// Measure the gradient noise scale: the batch size beyond which more images per step help little
    #[arg(long)]
    pub noise_scale: bool,
    /// Epochs between checkpoints
    #[arg(long, value_name = "EPOCHS", default_value_t = 1)]
    pub checkpoint_epochs: usize,
    /// Also write a checkpoint every STEPS steps
    #[arg(long, value_name = "STEPS")]
    pub checkpoint_steps: Option<u64>,
    /// Number of checkpoints to keep; Kolo removes older ones
    #[arg(long, value_name = "CHECKPOINTS", default_value_t = 3)]
    pub keep_checkpoints: usize,
    /// Also keep the best checkpoint by this metric, such as `accuracy`. Kolo measures it on the validation
    /// samples, or on the test samples if there are none
    #[arg(long, value_name = "METRIC")]
    pub best_metric: Option<String>,
    /// Also evaluate every STEPS steps, not only at the end of each epoch
    #[arg(long, value_name = "STEPS")]
    pub eval_steps: Option<u64>,
    /// Save and stop after this many hours, counted from this start. --resume continues for the same time
    /// again, or for a new --max-hours
    #[arg(long, value_name = "HOURS", value_parser = parse_number)]
    pub max_hours: Option<f64>,
    /// Stop after this many epochs without improvement of --best-metric, or else of the first metric. With
    /// --eval-steps, evaluations count in place of epochs
    #[arg(long, value_name = "EPOCHS")]
    pub patience: Option<usize>,
    /// Samples per forward pass in evaluation
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
    /// Optimizer settings for some tensors, such as 'fc.*:lr_scale=10,weight_decay=0' (see below). You may
    /// repeat it; later ones win
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
