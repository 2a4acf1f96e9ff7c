//! The learning rate of a run.

use kolo_ddp::Sampler;
use kolo_ddp::rate::{BatchScaling, Decay, Rate};
use kolo_ddp::table::parse_number;
use kolo_run_folder::units::counted;
use serde::{Deserialize, Serialize};

use super::check::{self, count, greater_than_0, steps_or_0};
use super::defaults::defaults;
use crate::error::Error;

/// The learning rate over a run: it rises, then falls by the schedule.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RateConfig {
    /// Learning rate
    #[arg(long, default_value_t = 0.1, value_parser = parse_number)]
    pub lr: f64,
    /// Global batch size that --lr was chosen for
    #[arg(long)]
    pub base_batch: Option<usize>,
    /// Rule that adapts the learning rate to a global batch other than `base_batch`.
    #[arg(skip)]
    pub scaling: BatchScaling,
    /// Schedule of the learning rate: constant, step, cosine or poly
    #[arg(long, value_enum, hide_possible_values = true, default_value = "cosine")]
    pub schedule: LearningRateSchedule,
    /// Steps over which the learning rate rises
    #[arg(long, default_value_t = 100)]
    pub warmup_steps: u64,
    /// Epochs over which the learning rate rises; replaces --warmup-steps
    #[arg(long, value_name = "EPOCHS", conflicts_with = "warmup_steps")]
    pub warmup_epochs: Option<usize>,
    /// With --schedule step: epochs between the cuts
    #[arg(long = "lr-step-epochs", value_name = "EPOCHS", default_value_t = 30)]
    pub step_epochs: usize,
    /// With --schedule step: factor of each cut
    #[arg(long = "lr-factor", value_name = "FACTOR", default_value_t = 0.1, value_parser = parse_number)]
    pub step_factor: f64,
    /// With --schedule poly: the exponent
    #[arg(long = "lr-power", value_name = "POWER", default_value_t = 2.0, value_parser = parse_number)]
    pub power: f64,
}

/// Schedule by which a learning rate falls after its rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LearningRateSchedule {
    /// The rate stays.
    Constant,
    /// The rate is cut every so many epochs.
    Step,
    /// The rate falls along half a cosine, to 0 at the end of the run.
    Cosine,
    /// The rate is a power of the remaining share of the run, and 0 at its end.
    Poly,
}

impl Default for RateConfig {
    fn default() -> Self {
        defaults()
    }
}

impl RateConfig {
    pub(super) fn check(&self) -> Result<(), Error> {
        check::rate("--lr", self.lr)?;
        count("--base-batch", self.base_batch)?;
        steps_or_0("--warmup-steps", self.warmup_steps)?;
        // 0 epochs mean no warm-up.
        count("--warmup-epochs", self.warmup_epochs.filter(|epochs| *epochs > 0))?;
        count("--lr-step-epochs", self.step_epochs)?;
        greater_than_0("--lr-factor", self.step_factor)?;
        greater_than_0("--lr-power", self.power)
    }

    /// Describes what becomes of the schedule if a run goes on to more epochs than it was begun with.
    pub fn describe_longer(&self, before: usize, epochs: usize) -> String {
        match self.schedule {
            LearningRateSchedule::Constant => {
                format!(
                    "{epochs} epochs in place of {before}: the constant schedule continues with its learning rate"
                )
            }
            LearningRateSchedule::Step => format!(
                "{epochs} epochs in place of {before}: the step schedule continues with a cut every {}, and none \
                 is moved",
                if self.step_epochs == 1 { "epoch".into() } else { counted(self.step_epochs, "epoch") }
            ),
            LearningRateSchedule::Cosine | LearningRateSchedule::Poly => format!(
                "{epochs} epochs in place of {before}: the fall of the learning rate is stretched to the new end, so \
                 the rate rises at once to that of a run of {epochs} epochs; the warm-up is not stretched"
            ),
        }
    }

    /// Returns the learning rate of each step, for a run of so many epochs. If the rate is for another global
    /// batch than the run's first one, a scaling rule applies (Goyal et al.,
    /// [arXiv:1706.02677](https://arxiv.org/abs/1706.02677)).
    pub(crate) fn over(&self, epochs: usize, sampler: &Sampler) -> StepRates {
        // A schedule with more steps than 64 bits can count is as good as endless.
        let steps = |epochs: usize| (epochs as u64).saturating_mul(sampler.steps() as u64);
        let decay = match self.schedule {
            LearningRateSchedule::Constant => Decay::Constant,
            LearningRateSchedule::Step => {
                Decay::Step { every: steps(self.step_epochs), factor: self.step_factor }
            }
            LearningRateSchedule::Cosine => Decay::Cosine,
            LearningRateSchedule::Poly => Decay::Polynomial { power: self.power },
        };
        let scaled = |batch| self.scaling.rate(self.lr, batch, sampler.global_batch());
        let base = self.base_batch.map_or(self.lr, scaled);
        let warmup = self.warmup_epochs.map_or(self.warmup_steps, steps);
        let rate = Rate { base, decay, warmup, total: steps(epochs) };
        StepRates { rate, sampler: sampler.clone() }
    }
}

/// The learning rate of each step of a run whose batch may grow: a schedule of epochs stays one.
#[derive(Clone, Debug)]
pub struct StepRates {
    rate: Rate,
    sampler: Sampler,
}

impl StepRates {
    /// Learning rate after the warm-up, before it falls.
    pub(crate) fn top(&self) -> f64 {
        self.rate.base
    }

    /// Steps over which the rate rises, counted as those of the first epoch.
    pub(crate) fn warmup(&self) -> u64 {
        self.rate.warmup
    }

    /// Returns the learning rate of a step of the whole run, from 0.
    pub fn at(&self, step: u64) -> f64 {
        self.rate.after(self.sampler.work_before(step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 samples in batches of 10.
    fn rates(config: &RateConfig, growth: &[&str]) -> StepRates {
        let growth: Vec<_> = growth.iter().map(|text| text.parse().unwrap()).collect();
        config.over(8, &Sampler::growing(100, 5, &growth, 2, 0).unwrap())
    }

    #[test]
    fn a_warm_up_of_epochs_takes_the_place_of_one_of_steps() {
        let config = RateConfig { warmup_epochs: Some(2), warmup_steps: 7, ..RateConfig::default() };
        let rates = rates(&config, &[]);
        assert!((rates.at(9) - 0.05).abs() < 1e-12 && rates.at(18) < 0.1);
        assert_eq!([rates.at(19), rates.at(20)], [0.1; 2]);
    }

    #[test]
    fn a_schedule_of_epochs_stays_one_where_the_batch_grows() {
        use LearningRateSchedule::*;
        for schedule in [Constant, Step, Cosine, Poly] {
            let config =
                RateConfig { schedule, warmup_epochs: Some(1), step_epochs: 3, ..RateConfig::default() };
            // Ten steps an epoch; five from the third on.
            let (same, grown) = (rates(&config, &[]), rates(&config, &["2:2"]));
            for epoch in 0..8 {
                let step = if epoch < 2 { 10 * epoch } else { 20 + 5 * (epoch - 2) };
                assert_eq!(grown.at(step).to_bits(), same.at(10 * epoch).to_bits(), "{schedule:?} {epoch}");
            }
        }
    }

    #[test]
    fn a_longer_run_stretches_the_fall_as_it_says() {
        use LearningRateSchedule::*;
        let sampler = Sampler::growing(100, 5, &[], 2, 0).unwrap();
        for (schedule, words, stretched) in [
            (Constant, "continues with its learning rate", false),
            (Step, "a cut every 3 epochs, and none is moved", false),
            (Cosine, "is stretched to the new end", true),
            (Poly, "is stretched to the new end", true),
        ] {
            let config = RateConfig { schedule, step_epochs: 3, warmup_steps: 5, ..RateConfig::default() };
            let (before, after) = (config.over(8, &sampler), config.over(12, &sampler));
            assert_eq!(before.at(3), after.at(3), "warm-up");
            assert_eq!(after.at(79) > before.at(79), stretched, "{schedule:?}");
            assert!(config.describe_longer(8, 12).contains(words), "{schedule:?}");
        }
    }

    #[test]
    fn the_first_batch_scales_the_rate() {
        let config = |scaling| RateConfig {
            base_batch: Some(40),
            scaling,
            warmup_steps: 0,
            schedule: LearningRateSchedule::Constant,
            ..RateConfig::default()
        };
        assert_eq!(rates(&config(BatchScaling::Linear), &["2:2"]).at(25), 0.025);
        assert_eq!(rates(&config(BatchScaling::Sqrt), &["2:2"]).at(25), 0.05);
    }
}
