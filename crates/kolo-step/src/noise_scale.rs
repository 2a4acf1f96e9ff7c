//! The gradient noise scale: the batch size from which more samples a step bring little.
//!
//! McCandlish, Kaplan, Amodei et al. 2018, "An Empirical Model of Large-Batch Training", appendix A.1. The
//! squared norm of a gradient that is the mean over B samples is on average |G|² + tr(Σ)/B. A step has such
//! norms for two sizes: those of its shards, and that of the whole batch. The two yield |G|² and tr(Σ), and
//! so B_noise = tr(Σ)/|G|². One step is very noisy, and a quotient of noisy numbers is biased, so both are
//! smoothed separately before the division.

use serde::{Deserialize, Serialize};

/// Factor of the averages in each step: they are over about the last hundred.
const LEFT: f64 = 0.99;

/// Noise of a job's gradient: running averages over its steps. The bits are the same for any number of
/// workers and any buckets, and after a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NoiseScale {
    /// The average of |G|², not yet corrected for its beginning at 0.
    gradient: f64,
    /// The average of tr(Σ), likewise.
    noise: f64,
    /// Number of steps in the averages.
    steps: f64,
}

/// The squared norms of one step's gradients, each of a mean over samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norms {
    /// Mean over the shards, weighted by their samples.
    pub(crate) small: f64,
    /// Samples of a shard: the number that has the noise of the shards' average, if they are of different
    /// sizes.
    pub(crate) small_batch: f64,
    /// Squared norm of the whole batch.
    pub(crate) large: f64,
    /// Samples of the whole batch.
    pub(crate) large_batch: f64,
}

/// Stands for a shard without samples in the arguments of [`Norms::of`].
pub(crate) const NO_SAMPLES: f64 = -1.0;

/// Returns one shard's number: the squared norm of its summed gradient divided by its samples.
pub fn of_shard(squares: f64, samples: f64) -> f64 {
    if samples > 0.0 { squares / samples } else { NO_SAMPLES }
}

impl Norms {
    /// Computes the norms from the numbers of all shards (`of_shard`), in their order, and the squared
    /// norm of the gradient that is summed over all `samples`. `None` if fewer than two shards have samples,
    /// or a norm is not known or not finite.
    ///
    /// The weighted mean of the shards' Σᵢ bᵢ/B · |gᵢ/bᵢ|² is Σᵢ |gᵢ|²/bᵢ / B, and its noise Σᵢ bᵢ/B ·
    /// tr(Σ)/bᵢ that of B/n samples, for n shards of any sizes.
    pub fn of(shards: &[f64], squares: f64, samples: f64) -> Option<Norms> {
        let with_samples: Vec<[f64; 2]> = shards
            .iter()
            .map(|number| if *number == NO_SAMPLES { [0.0; 2] } else { [*number, 1.0] })
            .collect();
        let [sum, n] = in_tree_order(with_samples);
        let (small, large) = (sum / samples, squares / (samples * samples));
        let is_known = small.is_finite() && large.is_finite() && n > 1.0;
        is_known.then_some(Norms { small, small_batch: samples / n, large, large_batch: samples })
    }

    /// Norms of gradients that are `factor` times as long.
    pub fn times(self, factor: f64) -> Norms {
        let square = factor * factor;
        Norms { small: self.small * square, large: self.large * square, ..self }
    }
}

/// Sums over all shards in the order of the gradients' sum: neighbors first.
fn in_tree_order(mut parts: Vec<[f64; 2]>) -> [f64; 2] {
    let sum = |pair: &[[f64; 2]]| pair.iter().fold([0.0; 2], |a, b| [a[0] + b[0], a[1] + b[1]]);
    while parts.len() > 1 {
        parts = parts.chunks(2).map(sum).collect();
    }
    parts.first().copied().unwrap_or_default()
}

impl NoiseScale {
    /// Returns the averages after one more step.
    pub fn with(self, norms: Norms) -> Self {
        let Norms { small, small_batch, large, large_batch } = norms;
        let gradient = (large_batch * large - small_batch * small) / (large_batch - small_batch);
        let noise = (small - large) / (1.0 / small_batch - 1.0 / large_batch);
        NoiseScale {
            gradient: LEFT * self.gradient + (1.0 - LEFT) * gradient,
            noise: LEFT * self.noise + (1.0 - LEFT) * noise,
            steps: self.steps + 1.0,
        }
    }

    /// B_noise, in samples or other items that the loss counts: the batch with which a step makes half of
    /// the progress of a batch without noise. `None` while noise hides the gradient.
    pub fn samples(&self) -> Option<f64> {
        (self.gradient > 0.0 && self.noise >= 0.0).then(|| self.noise / self.gradient)
    }

    /// The squared norm |G|² of the gradient without noise, on average over the steps so far; it may be
    /// negative after few steps.
    pub fn gradient_squared(&self) -> f64 {
        self.gradient / self.weight()
    }

    /// tr(Σ), the sum of the variances of one sample's gradient, likewise.
    pub fn noise_trace(&self) -> f64 {
        self.noise / self.weight()
    }

    /// Total weight of the steps in the averages, which begin at 0; corrects for that beginning.
    fn weight(&self) -> f64 {
        1.0 - libm::pow(LEFT, self.steps)
    }

    /// Compares a step of `samples` samples with the noise scale. `None` as [`NoiseScale::samples`].
    pub fn meaning(&self, samples: f64) -> Option<BatchMeaning> {
        // To reach a given loss takes S = S_min·(1 + B_noise/B) steps and E = E_min·(1 + B/B_noise) samples
        // (section 2.3).
        let critical = self.samples()?;
        let share = samples / critical;
        let (samples_needed, steps_needed) = (|share: f64| 1.0 + share, |share: f64| 1.0 + 1.0 / share);
        Some(BatchMeaning {
            critical,
            share,
            doubled_samples: samples_needed(2.0 * share) / samples_needed(share),
            doubled_steps: steps_needed(2.0 * share) / steps_needed(share),
        })
    }

    /// Text for a checkpoint, in which numbers keep every bit.
    pub fn to_text(self) -> Vec<String> {
        [self.gradient, self.noise, self.steps].iter().map(f64::to_string).collect()
    }

    /// Parses the text of a checkpoint; `None` if that is of another version.
    pub fn from_text(text: &[String]) -> Option<Self> {
        let numbers: Option<Vec<f64>> = text.iter().map(|number| number.parse().ok()).collect();
        let [gradient, noise, steps] = numbers?[..] else { return None };
        Some(NoiseScale { gradient, noise, steps })
    }
}

/// Comparison of a batch with the noise scale.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BatchMeaning {
    /// The critical batch: the noise scale itself.
    pub critical: f64,
    /// The batch as a share of it.
    pub share: f64,
    /// Ratio of the samples that twice the batch needs for the same loss.
    pub doubled_samples: f64,
    /// Ratio of the steps that it needs.
    pub doubled_steps: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-12 * b.abs(), "{a} {b}");
    }

    /// Shards of sizes b and 3b with the sums b·(μ + 3e) and 3b·(μ − e), where μ and e are orthogonal.
    #[test]
    fn two_norms_give_both_unknowns() {
        let (b, mu, e) = (5.0, 9.0, 2.0);
        let shards =
            [of_shard(b * b * (mu + 9.0 * e), b), of_shard(9.0 * b * b * (mu + e), 3.0 * b), NO_SAMPLES];
        let norms = Norms::of(&shards, 16.0 * b * b * mu, 4.0 * b).unwrap();
        let small = mu + (9.0 * e + 3.0 * e) / 4.0;
        assert_eq!(norms, Norms { small, small_batch: 2.0 * b, large: mu, large_batch: 4.0 * b });
        // |G|² + tr(Σ)/B is the measured norm, for both.
        let known = NoiseScale::default().with(norms);
        let (gradient, noise) = (known.gradient_squared(), known.noise_trace());
        close(gradient + noise / (2.0 * b), small);
        close(gradient + noise / (4.0 * b), mu);
        close(known.samples().unwrap(), noise / gradient);
    }

    #[test]
    fn both_are_averaged_before_the_division() {
        let norms = |small, large| Norms { small, small_batch: 10.0, large, large_batch: 20.0 };
        // tr(Σ) = 20·(small − large) and |G|² = 2·large − small: 40 and 8, then 160 and -4.
        let after = NoiseScale::default().with(norms(12.0, 10.0)).with(norms(12.0, 4.0));
        close(after.noise_trace(), (0.99 * 40.0 + 160.0) / 1.99);
        close(after.gradient_squared(), (0.99 * 8.0 - 4.0) / 1.99);
        close(after.samples().unwrap(), (0.99 * 40.0 + 160.0) / (0.99 * 8.0 - 4.0));
        let lost = NoiseScale::default().with(norms(12.0, 4.0));
        assert_eq!((lost.samples(), lost.meaning(20.0)), (None, None));
        assert_eq!(NoiseScale::from_text(&after.to_text()), Some(after));
        assert_eq!(NoiseScale::from_text(&["1".into()]), None);
    }

    #[test]
    fn a_step_that_cannot_be_measured_says_so() {
        assert_eq!(Norms::of(&[7.0, NO_SAMPLES], 3.0, 2.0), None);
        assert_eq!(Norms::of(&[7.0, f64::NAN], 3.0, 2.0), None);
        assert_eq!(Norms::of(&[7.0, 7.0], f64::INFINITY, 2.0), None);
    }

    #[test]
    fn what_it_means_follows_from_the_papers_trade() {
        let known = NoiseScale { gradient: 1.0, noise: 160.0, steps: 1.0 };
        let meaning = known.meaning(64.0).unwrap();
        close(meaning.share, 0.4);
        close(meaning.doubled_samples, 1.8 / 1.4);
        close(meaning.doubled_steps, 2.25 / 3.5);
        // The samples are twice the batch times the steps.
        close(2.0 * meaning.doubled_steps, meaning.doubled_samples);
    }
}
