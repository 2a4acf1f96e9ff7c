//! What the job is asked to do, as far as checks look at it: a value, whoever has made it of what.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What the job is asked to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Name of the model.
    pub model: String,
    /// Over what its batch normalisations take their means.
    pub normalisation: Normalisation,
    /// Name of the optimizer.
    pub optimizer: String,
    /// The learning rate.
    pub rate: RateSettings,
    /// How many samples a step has.
    pub batch: BatchSettings,
    /// What there is to do; `None` where rank 0 cannot read the data.
    pub work: Option<Work>,
    /// Shards of each worker, in the order of the ranks.
    pub shares: Vec<usize>,
    /// Whether the user has said the shares.
    pub has_weights: bool,
    /// What becomes of a worker that holds the others up, as `--straggler` says it.
    pub straggler: String,
    /// How much of each step's gradient goes over the wire, and when.
    pub exchange: Exchange,
    /// What is kept of the run.
    pub checkpoints: CheckpointSettings,
    /// Epochs without a better one after which the run ends.
    pub patience: Option<usize>,
    /// Seed of weights, order and augmentation.
    pub seed: u64,
    /// A run with the same settings that is there already.
    pub same_run: Option<PathBuf>,
    /// Whether others can take the place of workers that die.
    pub is_elastic: bool,
    /// Whether the run goes on from a checkpoint.
    pub resumes: bool,
    /// Whether the run folder may hold a part of the run already.
    pub may_continue: bool,
    /// The run folder, as the user spells it.
    pub folder: PathBuf,
}

/// Over what batch normalisation takes mean and variance in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Normalisation {
    /// The model has none.
    None,
    /// Each shard.
    PerShard,
    /// The global batch.
    GlobalBatch,
}

/// How much of each step's gradient goes over the wire, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exchange {
    /// All of it, and the step ends when it is back.
    WithinStep,
    /// All of it, and it has a whole step more.
    StepLater,
    /// Less of it, or of few steps.
    Less,
}

/// The learning rate over the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateSettings {
    /// After the warm-up, scaled to the batch if the user wants that.
    pub top: f64,
    /// Whether it follows the size of the batch by a rule.
    pub is_scaled: bool,
    /// Steps over which it rises.
    pub warmup_steps: u64,
    /// How it falls.
    pub schedule: Schedule,
}

/// How a learning rate falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Schedule {
    /// It does not.
    Constant,
    /// It is cut every so many epochs.
    Step {
        /// Epochs between two cuts.
        epochs: usize,
    },
    /// To 0 at the end of the last epoch.
    ToZero,
}

/// How many samples a step has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchSettings {
    /// Of a shard.
    pub shard: usize,
    /// Of all shards.
    pub global: usize,
}

/// What there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Samples to train on.
    pub samples: usize,
    /// Samples to test on.
    pub test_samples: usize,
    /// Epochs asked for.
    pub epochs: usize,
    /// Steps in the first epoch.
    pub epoch_steps: u64,
    /// Steps of all epochs, for which the learning rate is planned.
    pub planned_steps: u64,
    /// Steps after which the run is to end, if the user says so.
    pub step_limit: Option<u64>,
    /// Steps of the run.
    pub steps: u64,
    /// The learning rate of the last step.
    pub last_rate: f64,
}

/// What is kept of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointSettings {
    /// Epochs between two.
    pub epochs: usize,
    /// Steps between two, besides.
    pub steps: Option<u64>,
    /// How many are kept.
    pub keep: usize,
    /// Whether the best one is kept as well.
    pub best: bool,
}

impl Settings {
    /// Shards a step.
    pub fn shards(&self) -> usize {
        self.shares.iter().sum()
    }

    /// Workers that have shards or could have some.
    pub fn workers(&self) -> usize {
        self.shares.len()
    }
}

impl Work {
    /// Samples in the last step of an epoch.
    pub(crate) fn last_batch(&self, global: usize) -> usize {
        match self.samples % global {
            0 => global,
            left => left,
        }
    }
}

impl CheckpointSettings {
    /// Steps between two checkpoints, at most those of the run.
    pub(crate) fn interval(&self, work: &Work) -> u64 {
        let by_epochs = (self.epochs as u64).saturating_mul(work.epoch_steps);
        self.steps.unwrap_or(u64::MAX).min(by_epochs).min(work.steps).max(1)
    }
}
