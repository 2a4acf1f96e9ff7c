//! Learning rate of each step: one value per update, for any number of micro-batches.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

/// Decay of the rate after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decay {
    /// No decay.
    Constant,
    /// Multiplies the rate by `factor` after every `every` steps, which count from the start of the run.
    Step {
        /// Steps between two cuts, at least 1.
        every: u64,
        /// Factor of each cut.
        factor: f64,
    },
    /// Half a cosine from the base rate to 0 (Loshchilov & Hutter 2017, equation 5, without restarts).
    Cosine,
    /// The base rate times (1 − share of the decay that is over)^`power`, which ends at 0. You et al. 2017
    /// (LARS, [arXiv:1708.03888](https://arxiv.org/abs/1708.03888)) train with power 2.
    Polynomial {
        /// Exponent, greater than 0; 1 is a straight line.
        power: f64,
    },
}

/// Learning rate as a function of the step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Rate after the warm-up.
    pub base: f64,
    /// Decay after the warm-up.
    pub decay: Decay,
    /// Steps of a linear rise from base / warm-up to base (Goyal et al. 2017, section 2.2).
    pub warmup: u64,
    /// Steps of the whole run.
    pub total: u64,
}

impl Rate {
    /// Returns the rate of step `step`, counted from 0.
    pub fn at(&self, step: u64) -> f64 {
        self.after(step as f64)
    }

    /// Returns the rate of the step that follows `steps` steps of work. If the batch grows during a run, a
    /// later step counts as several of the first ones, so that a schedule in epochs keeps its length.
    pub fn after(&self, steps: f64) -> f64 {
        let (warmup, total) = (self.warmup as f64, self.total as f64);
        if steps < warmup {
            return self.base * (steps + 1.0).min(warmup) / warmup;
        }
        let share = || ((steps - warmup) / (total - warmup).max(1.0)).min(1.0);
        match self.decay {
            Decay::Constant => self.base,
            Decay::Step { every, factor } => {
                self.base * libm::pow(factor, (steps / every.max(1) as f64).floor())
            }
            Decay::Cosine => self.base * 0.5 * (1.0 + libm::cos(PI * share())),
            Decay::Polynomial { power } => self.base * libm::pow(1.0 - share(), power),
        }
    }
}

/// Scaling of the learning rate with the batch size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BatchScaling {
    /// A batch k times as large gets a rate k times as large, like the sum of k small steps in which the
    /// weights move little (Goyal et al. 2017, section 2.1).
    #[default]
    Linear,
    /// A batch k times as large gets a rate √k times as large, so that the noise of a step keeps its variance
    /// (Krizhevsky 2014, [arXiv:1404.5997](https://arxiv.org/abs/1404.5997)). You et al. 2020 scale LAMB's
    /// rate like this.
    Sqrt,
}

impl BatchScaling {
    /// Returns the rate for a global batch of `batch` samples, given the rate `base` for `base_batch`
    /// samples.
    pub fn rate(self, base: f64, base_batch: usize, batch: usize) -> f64 {
        match self {
            BatchScaling::Linear => base * batch as f64 / base_batch as f64,
            BatchScaling::Sqrt => base * (batch as f64 / base_batch as f64).sqrt(),
        }
    }
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
    fn decays_as_configured() {
        assert_eq!(rate(Decay::Constant).at(1000), 0.8);
        let step = rate(Decay::Step { every: 30, factor: 0.1 });
        assert!((step.at(29) - 0.8).abs() < 1e-12 && (step.at(60) - 0.008).abs() < 1e-12);
        let cosine = rate(Decay::Cosine);
        assert!((cosine.at(54) - 0.4).abs() < 1e-12 && cosine.at(104) < 1e-12 && cosine.at(5000) < 1e-12);
    }

    #[test]
    fn a_polynomial_ends_at_zero() {
        // You et al. 2017, section 5: power 2. A quarter is left in the middle of the decay.
        let square = rate(Decay::Polynomial { power: 2.0 });
        assert_eq!(square.at(4), 0.8);
        assert!((square.at(54) - 0.2).abs() < 1e-12, "{}", square.at(54));
        assert_eq!([square.at(104), square.at(5000)], [0.0; 2]);
        let line = rate(Decay::Polynomial { power: 1.0 });
        assert!((line.at(29) - 0.6).abs() < 1e-12, "{}", line.at(29));
    }

    #[test]
    fn a_schedule_of_goyals_run() {
        // Goyal et al. 2017, section 5.1: 8,192 images, rate 0.1 per 256 images, five epochs of warm-up, cut
        // to a tenth after epochs 30 and 60. (`Decay::Step` cannot express their third cut, after epoch 80.)
        let epoch = 1_281_167_u64.div_ceil(8192);
        let base = BatchScaling::Linear.rate(0.1, 256, 8192);
        let decay = Decay::Step { every: 30 * epoch, factor: 0.1 };
        let rate = Rate { base, decay, warmup: 5 * epoch, total: 90 * epoch };
        assert_eq!(base, 3.2);
        assert!((rate.at(0) - 3.2 / (5 * epoch) as f64).abs() < 1e-12);
        assert_eq!([rate.at(5 * epoch - 1), rate.at(5 * epoch), rate.at(30 * epoch - 1)], [3.2; 3]);
        assert!((rate.at(30 * epoch) - 0.32).abs() < 1e-12 && (rate.at(89 * epoch) - 0.032).abs() < 1e-12);
    }

    #[test]
    fn work_between_two_steps_has_a_rate_between_theirs() {
        for decay in [Decay::Cosine, Decay::Polynomial { power: 2.0 }] {
            let rate = rate(decay);
            assert!(rate.at(40) < rate.after(39.5) && rate.after(39.5) < rate.at(39));
            assert_eq!(rate.after(40.0).to_bits(), rate.at(40).to_bits());
        }
        // Half a step beyond the warm-up stays at the base rate.
        assert_eq!(rate(Decay::Constant).after(3.5), 0.8);
    }

    #[test]
    fn scales_as_the_papers_do() {
        assert_eq!(BatchScaling::Linear.rate(0.1, 256, 8192), 3.2);
        // You et al. 2020, untuned LAMB for BERT: 5 / (2^3 × 10^3) for 512 sentences, 5 / 10^3 for 32,768.
        let lamb = BatchScaling::Sqrt.rate(5.0 / 8e3, 512, 32_768);
        assert!((lamb - 5.0 / 1e3).abs() < 1e-15, "{lamb}");
    }
}
