//! The learning rate of each step: one value an update, however many micro-batches the update has.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

/// How the rate falls after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decay {
    /// Not at all.
    Constant,
    /// Multiplied by `factor` after every `every` steps.
    Step {
        /// Steps between two cuts, at least 1.
        every: u64,
        /// What is left after a cut.
        factor: f64,
    },
    /// Half a cosine from the base rate to 0 (Loshchilov & Hutter 2017, equation 5, without restarts).
    Cosine,
}

/// Learning rate as a function of the step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// The rate after the warm-up.
    pub base: f64,
    /// How it falls.
    pub decay: Decay,
    /// Steps over which it rises linearly from base / warm-up to base (Goyal et al. 2017, section 2.2).
    pub warmup: u64,
    /// Steps of the whole run.
    pub total: u64,
}

impl Rate {
    /// The rate of step `step`, from 0.
    pub fn at(&self, step: u64) -> f64 {
        if step < self.warmup {
            return self.base * (step + 1) as f64 / self.warmup as f64;
        }
        match self.decay {
            Decay::Constant => self.base,
            Decay::Step { every, factor } => self.base * factor.powf((step / every.max(1)) as f64),
            Decay::Cosine => {
                let (gone, all) = (step - self.warmup, self.total.saturating_sub(self.warmup).max(1));
                self.base * 0.5 * (1.0 + (PI * (gone as f64 / all as f64).min(1.0)).cos())
            }
        }
    }
}

/// The linear scaling rule: a batch k times as large gets a rate k times as large (Goyal et al. 2017, section
/// 2.1). `base` is the rate stated for `base_batch`.
pub fn scale_linearly(base: f64, base_batch: usize, batch: usize) -> f64 {
    base * batch as f64 / base_batch as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(decay: Decay) -> Rate {
        Rate { base: 0.8, decay, warmup: 4, total: 104 }
    }

    #[test]
    fn warms_up_linearly() {
        let rates: Vec<f64> = (0..5).map(|step| rate(Decay::Constant).at(step)).collect();
        assert_eq!(rates, [0.2, 0.4, 0.6000000000000001, 0.8, 0.8]);
    }

    #[test]
    fn falls_as_asked() {
        assert_eq!(rate(Decay::Constant).at(1000), 0.8);
        let step = rate(Decay::Step { every: 30, factor: 0.1 });
        assert!((step.at(29) - 0.8).abs() < 1e-12 && (step.at(60) - 0.008).abs() < 1e-12);
        let cosine = rate(Decay::Cosine);
        assert!((cosine.at(54) - 0.4).abs() < 1e-12 && cosine.at(104) < 1e-12 && cosine.at(5000) < 1e-12);
    }

    #[test]
    fn scales_linearly() {
        assert_eq!(scale_linearly(0.1, 256, 8192), 3.2);
    }
}
