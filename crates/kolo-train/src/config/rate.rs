//! The learning rate of a run.

use kolo_ddp::Sampler;
use kolo_ddp::rate::{Decay, Rate, scale_linearly};
use serde::{Deserialize, Serialize};

use super::check::{at_least_1, greater_than_0};
use super::defaults::defaults;
use crate::error::Error;

/// The learning rate over a run: it rises, then falls as the schedule says.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RateConfig {
    /// Learning rate
    #[arg(long, default_value_t = 0.1)]
    pub lr: f64,
    /// The global batch that --lr is meant for
    #[arg(long)]
    pub base_batch: Option<usize>,
    /// How the learning rate falls: constant, step, cosine
    #[arg(long, value_enum, hide_possible_values = true, default_value = "cosine")]
    pub schedule: LearningRateSchedule,
    /// Steps over which the learning rate rises
    #[arg(long, default_value_t = 100)]
    pub warmup_steps: u64,
    /// Epochs between the cuts of --schedule step
    #[arg(long = "lr-step-epochs", value_name = "EPOCHS", default_value_t = 30)]
    pub step_epochs: usize,
    /// What a cut of --schedule step leaves
    #[arg(long = "lr-factor", value_name = "FACTOR", default_value_t = 0.1)]
    pub step_factor: f64,
}

/// How a learning rate falls after it has risen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LearningRateSchedule {
    /// It does not.
    Constant,
    /// It is cut every so many epochs.
    Step,
    /// Along half a cosine, to 0 at the end of the run.
    Cosine,
}

impl Default for RateConfig {
    fn default() -> Self {
        defaults()
    }
}

impl RateConfig {
    pub(super) fn check(&self) -> Result<(), Error> {
        greater_than_0("--lr", self.lr)?;
        at_least_1("--base-batch", self.base_batch.map(|batch| batch as u64))?;
        at_least_1("--lr-step-epochs", self.step_epochs as u64)?;
        greater_than_0("--lr-factor", self.step_factor)
    }

    /// The learning rate of each step, of a run of so many epochs. If it is meant for another global batch
    /// than the run's, the linear scaling rule applies (Goyal et al.,
    /// [arXiv:1706.02677](https://arxiv.org/abs/1706.02677)).
    pub(crate) fn over(&self, epochs: usize, sampler: &Sampler) -> Rate {
        let decay = match self.schedule {
            LearningRateSchedule::Constant => Decay::Constant,
            LearningRateSchedule::Step => {
                Decay::Step { every: (self.step_epochs * sampler.steps()) as u64, factor: self.step_factor }
            }
            LearningRateSchedule::Cosine => Decay::Cosine,
        };
        let scaled = |batch| scale_linearly(self.lr, batch, sampler.global_batch());
        let base = self.base_batch.map_or(self.lr, scaled);
        Rate { base, decay, warmup: self.warmup_steps, total: (epochs * sampler.steps()) as u64 }
    }
}
