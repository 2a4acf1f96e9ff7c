//! Settings of the job that checks use, independent of the recipe's format.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Settings of the job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Name of the model.
    pub model: String,
    /// Samples over which its batch normalizations take their means.
    pub normalization: Normalization,
    /// Name of the optimizer.
    pub optimizer: String,
    /// Learning rate.
    pub rate: RateSettings,
    /// Number of samples in a step.
    pub batch: BatchSettings,
    /// Amount of work; `None` if rank 0 cannot read the data.
    pub work: Option<Work>,
    /// Number of shards of each worker, in the order of the ranks.
    pub shares: Vec<usize>,
    /// True if the user has set the shares.
    pub has_weights: bool,
    /// Policy for a worker that the others wait for, as in `--straggler`.
    pub straggler: String,
    /// Amount and time of the communication of each step's gradient.
    pub exchange: Exchange,
    /// Checkpoints of the run.
    pub checkpoints: CheckpointSettings,
    /// Epochs without improvement after which the run ends.
    pub patience: Option<usize>,
    /// Seed of weights, order and augmentation.
    pub seed: u64,
    /// Existing run with the same settings.
    pub same_run: Option<PathBuf>,
    /// True if other workers can replace those that die.
    pub is_elastic: bool,
    /// True if the run resumes from a checkpoint.
    pub resumes: bool,
    /// True if the run folder may already hold a part of the run.
    pub may_continue: bool,
    /// Run folder, as the user spells it.
    pub folder: PathBuf,
}

/// Samples over which batch normalization takes mean and variance in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Normalization {
    /// The model has no batch normalization.
    None,
    /// Samples of each shard.
    PerShard,
    /// Samples of the global batch.
    GlobalBatch,
}

/// Amount and time of the communication of each step's gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exchange {
    /// The whole gradient, within the step.
    WithinStep,
    /// The whole gradient, with one more step of time.
    StepLater,
    /// A compressed gradient, or the gradient of few steps.
    Less,
}

/// Learning rate over the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateSettings {
    /// Learning rate after the warm-up, scaled to the batch if the user wants that.
    pub top: f64,
    /// True if it follows the batch size by a rule.
    pub is_scaled: bool,
    /// Number of warm-up steps, in which it rises.
    pub warmup_steps: u64,
    /// Shape of its decrease.
    pub schedule: Schedule,
}

/// Decrease of a learning rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Schedule {
    /// No decrease.
    Constant,
    /// A cut at regular intervals.
    Step {
        /// Epochs between two cuts.
        epochs: usize,
    },
    /// A decrease to 0 at the end of the last epoch.
    ToZero,
}

/// Number of samples in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchSettings {
    /// Samples of a shard.
    pub shard: usize,
    /// Samples of all shards.
    pub global: usize,
}

/// Amount of work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Samples to train on.
    pub samples: usize,
    /// Samples to test on.
    pub test_samples: usize,
    /// Number of epochs in the settings.
    pub epochs: usize,
    /// Steps in the first epoch.
    pub epoch_steps: u64,
    /// Steps of all epochs, for which the learning rate is planned.
    pub planned_steps: u64,
    /// Maximum number of steps, if the user sets one.
    pub step_limit: Option<u64>,
    /// Steps of the run.
    pub steps: u64,
    /// Learning rate of the last step.
    pub last_rate: f64,
}

/// Checkpoints of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointSettings {
    /// Epochs between two checkpoints.
    pub epochs: usize,
    /// Steps between two checkpoints, in addition.
    pub steps: Option<u64>,
    /// Number of checkpoints that are kept.
    pub keep: usize,
    /// True if the best one is kept as well.
    pub best: bool,
}

impl Settings {
    /// Number of shards per step.
    pub fn shards(&self) -> usize {
        self.shares.iter().sum()
    }

    /// Number of workers, which are the ranks that can have shards.
    pub fn workers(&self) -> usize {
        self.shares.len()
    }
}

impl Work {
    /// Number of samples in the last step of an epoch.
    pub(crate) fn last_batch(&self, global: usize) -> usize {
        match self.samples % global {
            0 => global,
            left => left,
        }
    }
}

impl CheckpointSettings {
    /// Steps between two checkpoints, at most the steps of the run.
    pub(crate) fn interval(&self, work: &Work) -> u64 {
        let by_epochs = (self.epochs as u64).saturating_mul(work.epoch_steps);
        self.steps.unwrap_or(u64::MAX).min(by_epochs).min(work.steps).max(1)
    }
}
