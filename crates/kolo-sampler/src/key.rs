//! Random numbers that are a pure function of their purpose.
//!
//! The values of a generator with a state depend on earlier draws; with several workers and prefetching
//! threads their order differs from run to run. A [`Key`] has no order:
//! `Key::new(seed).with(epoch).with(sample)` is the same number everywhere and at any time.
//!
//! Each level is one output of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
//! generators", OOPSLA 2014, [doi:10.1145/2660193.2660195](https://doi.org/10.1145/2660193.2660195)):
//! `key.with(n)` is the n-th output, from 0, of the generator seeded with `key`. The step (an odd multiple)
//! and the mixing are both bijections, so two different `n` never share a key.

use kolo_schedule::hash::{GOLDEN_GAMMA, fnv1a, splitmix64};

/// A 64-bit number derived from a seed and a purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u64);

impl Key {
    /// The root of all keys of one seed.
    pub fn new(seed: u64) -> Self {
        Self(seed).with(0)
    }

    /// The key for number `n` below this one.
    #[inline]
    pub fn with(self, n: u64) -> Self {
        Self(splitmix64(self.0.wrapping_add(GOLDEN_GAMMA.wrapping_mul(n.wrapping_add(1)))))
    }

    /// The key for `name` below this one.
    pub fn with_str(self, name: &str) -> Self {
        self.with(fnv1a(name.as_bytes()))
    }

    /// The number itself.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Uniform in [0, 1), with 53 random bits.
    #[inline]
    pub fn unit(self) -> f64 {
        (self.0 >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns true if [`Key::unit`] is below `probability`, without computing it.
    #[inline]
    pub fn below_probability(self, probability: f64) -> bool {
        // unit = n / 2⁵³ for an integer n, and multiplying by a power of two rounds nothing.
        self.0 >> 11 < (probability * (1u64 << 53) as f64).ceil() as u64
    }

    /// Standard normal, by Box and Muller's transform (1958). The logarithm and the cosine are libm's,
    /// written in Rust, because the platform's own may differ in the last bit from one machine to the next.
    pub fn normal(self) -> f64 {
        let radius = (-2.0 * libm::log(1.0 - self.with(0).unit())).sqrt();
        radius * libm::cos(std::f64::consts::TAU * self.with(1).unit())
    }

    /// Uniform in `0..n`, by multiplication (Lemire 2019): the bias is below n / 2⁶⁴.
    pub fn below(self, n: usize) -> usize {
        ((u128::from(self.0) * n as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_outputs_are_splitmix64s() {
        // Reference values of Vigna's splitmix64.c for the seed 1234567.
        let key = Key(1_234_567);
        let outputs = [0, 1, 2, 3, 4].map(|n| key.with(n).0);
        assert_eq!(
            outputs,
            [
                6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423,
                4_593_380_528_125_082_431, 16_408_922_859_458_223_821
            ]
        );
    }

    #[test]
    fn keys_differ_by_every_level() {
        let key = Key::new(1).with(2).with(3);
        assert_ne!(key, Key::new(2).with(2).with(3));
        assert_ne!(key, Key::new(1).with(3).with(2));
        assert_ne!(Key::new(1).with_str("a"), Key::new(1).with_str("b"));
    }

    #[test]
    fn below_a_probability_is_what_the_unit_number_is() {
        let near = |key: Key| [key.unit().next_down(), key.unit(), key.unit().next_up()];
        for n in 0..1_000 {
            let key = Key::new(3).with(n);
            let probabilities = near(key).into_iter().chain(near(Key::new(4).with(n))).chain([0.0, 0.1, 1.0]);
            for probability in probabilities {
                assert_eq!(
                    key.below_probability(probability),
                    key.unit() < probability,
                    "{key:?} {probability}"
                );
            }
        }
    }

    #[test]
    fn normal_values_have_the_moments_of_a_normal_distribution() {
        let n = 100_000;
        let values: Vec<f64> = (0..n).map(|i| Key::new(7).with(i).normal()).collect();
        let moment = |power| values.iter().map(|v| v.powi(power)).sum::<f64>() / n as f64;
        assert!(moment(1).abs() < 0.02, "mean {}", moment(1));
        assert!((moment(2) - 1.0).abs() < 0.02, "variance {}", moment(2));
        assert!(moment(3).abs() < 0.05, "skewness {}", moment(3));
        assert!((moment(4) - 3.0).abs() < 0.1, "kurtosis {}", moment(4));
    }

    #[test]
    fn below_is_even() {
        let mut counts = [0u32; 9];
        for n in 0..90_000 {
            counts[Key::new(5).with(n).below(9)] += 1;
        }
        assert!(counts.iter().all(|c| (9_500..10_500).contains(c)), "{counts:?}");
    }
}
