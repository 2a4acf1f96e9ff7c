//! Dynamic loss scaling: the loss is multiplied before the backward pass so that small gradients do not
//! vanish in `f16`, and the factor that the optimizer applies to the gradient divides it again.
//!
//! The scale follows the rule of Micikevicius et al. 2018,
//! [arXiv:1710.03740](https://arxiv.org/abs/1710.03740), section 3.2, in the form of PyTorch's `GradScaler`.
//! All ranks see the same reduced gradient, so they decide the same without communication. The scale is part
//! of a replica's state: ranks that join later receive it, and checkpoints hold it.

use serde::{Deserialize, Serialize};

use kolo_optim::table::Value;
use kolo_reduction::Error;

/// Settings of the scale of a job's loss. The defaults are those of PyTorch's `GradScaler`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScaling {
    /// The scale of the first step. A loss is a sum over samples here, not their mean, so the scale settles
    /// log₂(samples of a shard) halvings below PyTorch's.
    pub initial: f64,
    /// Factor of the scale after `growth_interval` steps without an overflow.
    pub growth: f64,
    /// Factor of the scale after a step that overflowed.
    pub backoff: f64,
    /// Steps without an overflow after which it grows.
    pub growth_interval: u64,
}

impl Default for LossScaling {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl LossScaling {
    /// PyTorch's settings.
    pub const DEFAULT: LossScaling =
        LossScaling { initial: 65536.0, growth: 2.0, backoff: 0.5, growth_interval: 2000 };

    /// The scale at which an overflow is the model's fault, not that of the scale.
    const LEAST: f32 = 1.0 / 65536.0;

    /// Refuses invalid settings.
    ///
    /// # Errors
    ///
    /// Names the setting and its permitted values.
    pub fn check(&self) -> Result<(), Error> {
        self.problem().map_or(Ok(()), |(setting, value, allowed)| {
            let value = Value::Number(value);
            Err(Error::Setting(format!("the loss scale's {setting} is {value}; it must be {allowed}")))
        })
    }

    /// Returns the name of an invalid setting, its value, and its permitted values.
    pub fn problem(&self) -> Option<(&'static str, f64, &'static str)> {
        let LossScaling { initial, growth, backoff, growth_interval } = *self;
        let (least, most) = (f64::from(Self::LEAST), f64::from(f32::MAX));
        // The scale is computed in single precision, which may round a factor to 1, 0 or infinity.
        let in_f32 = |factor: f64| factor as f32;
        if !(least..=most).contains(&initial) {
            Some(("initial value", initial, "from 2⁻¹⁶ to the largest f32"))
        } else if !(in_f32(growth) > 1.0 && in_f32(growth).is_finite()) {
            Some(("growth", growth, "greater than 1 and at most 3e38, as single precision holds it"))
        } else if !(in_f32(backoff) > 0.0 && in_f32(backoff) < 1.0) {
            Some(("backoff", backoff, "between 0 and 1, as single precision holds it"))
        } else {
            (growth_interval == 0).then_some(("growth interval", 0.0, "at least 1 step"))
        }
    }
}

/// State of a job's loss scaling: the same on all ranks after each step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossScale {
    /// Factor of the next step's loss.
    pub scale: f32,
    /// Steps without an overflow since it changed.
    pub clean_steps: u64,
    /// Steps that were skipped because they overflowed, or in which this island had no samples. Optimizers do
    /// not count them.
    pub skipped_steps: u64,
}

/// Scales the losses of one replica, or leaves them as they are.
#[derive(Debug)]
pub struct LossScaler {
    settings: Option<LossScaling>,
    now: LossScale,
}

impl LossScaler {
    /// Creates the scaler of a new job; without settings the scale stays 1.
    pub fn new(settings: Option<LossScaling>) -> Self {
        let scale = settings.map_or(1.0, |settings| settings.initial as f32);
        LossScaler { settings, now: LossScale { scale, clean_steps: 0, skipped_steps: 0 } }
    }

    /// Returns true if losses are scaled.
    pub fn is_on(&self) -> bool {
        self.settings.is_some()
    }

    /// Scale of the next step, and the steps so far.
    pub fn now(&self) -> LossScale {
        self.now
    }

    /// Resets the count of skipped steps, for an optimizer that begins anew and counts its steps from 0.
    pub fn count_anew(&mut self) {
        self.now.skipped_steps = 0;
    }

    /// Continues from another replica's state, or a checkpoint's. If losses are not scaled, it takes only
    /// the number of skipped steps.
    pub fn take_over(&mut self, state: LossScale) {
        let skipped_steps = state.skipped_steps;
        self.now = if self.is_on() { state } else { LossScale { skipped_steps, ..self.now } };
    }

    /// Returns true if a step that overflows now is skipped. If a smaller scale would not help, an overflow
    /// is an error.
    pub fn may_skip(&self) -> bool {
        self.is_on() && self.now.scale > LossScaling::LEAST
    }

    /// Leaves out a step without samples, which changes neither the scale nor the optimizer's state.
    pub fn step_without_samples(&mut self) {
        self.now.skipped_steps += 1;
    }

    /// Updates the state at the end of a step.
    pub fn step_done(&mut self, overflowed: bool) {
        let Some(settings) = self.settings else { return };
        let LossScale { scale, clean_steps, skipped_steps } = &mut self.now;
        if overflowed {
            *scale = (*scale * settings.backoff as f32).max(LossScaling::LEAST);
            (*clean_steps, *skipped_steps) = (0, *skipped_steps + 1);
            return;
        }
        *clean_steps += 1;
        if *clean_steps == settings.growth_interval {
            let grown = *scale * settings.growth as f32;
            (*scale, *clean_steps) = (if grown.is_finite() { grown } else { *scale }, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_follows_overflows_as_in_pytorch() {
        let settings = LossScaling { initial: 8.0, growth_interval: 3, ..LossScaling::default() };
        let mut scaler = LossScaler::new(Some(settings));
        let mut seen = Vec::new();
        // Scales of `torch.amp.GradScaler(init_scale=8, growth_interval=3)` (PyTorch 2.11).
        for overflowed in [false, false, true, false, false, false, false, true, true] {
            scaler.step_done(overflowed);
            seen.push(scaler.now().scale);
        }
        assert_eq!(seen, [8.0, 8.0, 4.0, 4.0, 4.0, 8.0, 8.0, 4.0, 2.0]);
        assert_eq!(scaler.now(), LossScale { scale: 2.0, clean_steps: 0, skipped_steps: 3 });
        scaler.step_done(false);
        scaler.step_without_samples();
        assert_eq!(scaler.now(), LossScale { scale: 2.0, clean_steps: 1, skipped_steps: 4 });
    }

    #[test]
    fn the_scale_stays_a_number_and_does_not_vanish() {
        let most = LossScaling { initial: f64::from(f32::MAX), growth_interval: 1, ..LossScaling::default() };
        let mut scaler = LossScaler::new(Some(most));
        scaler.step_done(false);
        assert_eq!(scaler.now().scale, f32::MAX);
        let mut scaler = LossScaler::new(Some(LossScaling::default()));
        let mut skipped = 0;
        while scaler.may_skip() {
            scaler.step_done(true);
            skipped += 1;
        }
        assert_eq!((skipped, scaler.now().scale), (32, LossScaling::LEAST));
    }

    #[test]
    fn what_is_not_scaled_keeps_its_scale_of_one() {
        let mut scaler = LossScaler::new(None);
        scaler.take_over(LossScale { scale: 1024.0, clean_steps: 7, skipped_steps: 2 });
        (0..3000).for_each(|_| scaler.step_done(false));
        assert_eq!(scaler.now(), LossScale { scale: 1.0, clean_steps: 0, skipped_steps: 2 });
        assert!(!scaler.may_skip());
    }

    #[test]
    fn settings_that_are_no_scaling_are_named() {
        let default = LossScaling::default();
        assert!(default.check().is_ok());
        for (settings, text) in [
            (LossScaling { initial: 0.0, ..default }, "initial value"),
            (LossScaling { initial: f64::INFINITY, ..default }, "initial value"),
            (LossScaling { growth: 1.0, ..default }, "growth"),
            (LossScaling { growth: 1.000000001, ..default }, "growth"),
            (LossScaling { growth: 1e39, ..default }, "growth is 1e39; it must be greater than 1"),
            (LossScaling { backoff: 1.0, ..default }, "backoff"),
            (LossScaling { backoff: f64::NAN, ..default }, "backoff"),
            (LossScaling { backoff: 0.999999999, ..default }, "backoff"),
            (LossScaling { backoff: 1e-50, ..default }, "backoff is 1e-50; it must be between"),
            (LossScaling { growth_interval: 0, ..default }, "growth interval"),
        ] {
            let error = settings.check().unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}
