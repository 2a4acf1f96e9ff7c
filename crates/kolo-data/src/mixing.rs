//! Mixup and CutMix: the images of a batch are mixed with each other, and so are their labels.
//!
//! A mixture depends on (seed, epoch, step, shard) and nothing else, so that it is the same for any number of
//! workers, and when a step is repeated.

use kolo_sampler::key::Key;

use crate::batch::Batch;

/// Kinds of mixtures, each with the α of the Beta(α, α) distribution of λ, the share of an image's own label.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mixtures {
    /// Blends pixels: λ of the image and 1 − λ of its partner (Zhang et al. 2018,
    /// [arXiv:1710.09412](https://arxiv.org/abs/1710.09412)).
    pub mixup: Option<f64>,
    /// Replaces a rectangle of 1 − λ of the area by the partner's (Yun et al. 2019,
    /// [arXiv:1905.04899](https://arxiv.org/abs/1905.04899), algorithm A1).
    pub cutmix: Option<f64>,
}

/// All values that decide a mixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MixingKey {
    /// Seed of the job.
    pub seed: u64,
    /// Epoch, from 0.
    pub epoch: usize,
    /// Step of the epoch, from 0.
    pub step: usize,
    /// Shard of the step, from 0.
    pub shard: usize,
}

/// Mixture of the images of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixing {
    /// For each image, the index of its partner in the batch.
    pub partners: Vec<usize>,
    /// λ: share of the image's own label; its partner's label has the rest.
    pub own_share: f64,
    /// Rows and columns that come from the partner; `None` if all pixels are blended.
    pub cut: Option<[std::ops::Range<usize>; 2]>,
}

impl Mixtures {
    /// Mixes a batch, and returns how; `None` if there is nothing to mix. With both kinds each batch gets one
    /// of them, with equal probability.
    pub fn mix(&self, key: MixingKey, batch: &mut Batch) -> Option<Mixing> {
        let MixingKey { seed, epoch, step, shard } = key;
        let key = Key::new(seed).with_str("mixing").with(epoch as u64).with(step as u64).with(shard as u64);
        let (alpha, cuts) = match (self.mixup, self.cutmix) {
            (Some(_), Some(alpha)) if key.with(0).below(2) == 1 => (alpha, true),
            (Some(alpha), _) => (alpha, false),
            (None, Some(alpha)) => (alpha, true),
            (None, None) => return None,
        };
        let mixing = Mixing::draw(key, alpha, cuts, batch.shape);
        mixing.apply(batch);
        Some(mixing)
    }
}

impl Mixing {
    fn draw(key: Key, alpha: f64, cuts: bool, [samples, _, height, width]: [usize; 4]) -> Self {
        let mut partners: Vec<usize> = (0..samples).collect();
        for last in (1..samples).rev() {
            partners.swap(last, key.with(1).with(last as u64).below(last + 1));
        }
        let own_share = beta(key.with(2), alpha);
        if !cuts {
            return Mixing { partners, own_share, cut: None };
        }
        let ratio = (1.0 - own_share).sqrt();
        let side = |length: usize, number: u64| {
            let (cut, center) = ((length as f64 * ratio) as usize, key.with(3).with(number).below(length));
            center.saturating_sub(cut / 2)..(center + cut / 2).min(length)
        };
        let cut = [side(height, 0), side(width, 1)];
        let own_share = 1.0 - (cut[0].len() * cut[1].len()) as f64 / (height * width) as f64;
        Mixing { partners, own_share, cut: Some(cut) }
    }

    fn apply(&self, batch: &mut Batch) {
        let [_, channels, height, width] = batch.shape;
        let (size, own) = (channels * height * width, self.own_share as f32);
        let before = batch.images.clone();
        for (image, &partner) in batch.images.chunks_exact_mut(size.max(1)).zip(&self.partners) {
            let partner = &before[partner * size..][..size];
            match &self.cut {
                None => image.iter_mut().zip(partner).for_each(|(x, y)| *x = own * *x + (1.0 - own) * y),
                Some([rows, columns]) => {
                    for row in
                        (0..channels).flat_map(|channel| rows.clone().map(move |y| channel * height + y))
                    {
                        let place = row * width + columns.start..row * width + columns.end;
                        image[place.clone()].copy_from_slice(&partner[place]);
                    }
                }
            }
        }
    }
}

/// Returns a number of the distribution Beta(α, α): the share of one of two numbers of Gamma(α). It compares
/// their logarithms, because a number of a small α may be too small for `f64`.
fn beta(key: Key, alpha: f64) -> f64 {
    let [one, other] = [0, 1].map(|number| log_gamma_number(key.with(number), alpha));
    1.0 / (1.0 + libm::exp(other - one))
}

/// Returns the logarithm of a number of the distribution Gamma(α) (Marsaglia and Tsang 2000: a number of
/// Gamma(α + 1), by rejection, times the α-th root of a uniform one). Functions are libm's, which have the
/// same bits everywhere.
fn log_gamma_number(key: Key, alpha: f64) -> f64 {
    let uniform = |key: Key| 1.0 - key.unit();
    let d = alpha + 1.0 - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    let mut tries = (0..).map(|number| key.with(1).with(number));
    let accepted = tries.find_map(|key| {
        let x = key.with(0).normal();
        let v = (1.0 + c * x) * (1.0 + c * x) * (1.0 + c * x);
        let is_taken =
            v > 0.0 && libm::log(uniform(key.with(1))) < 0.5 * x * x + d - d * v + d * libm::log(v);
        is_taken.then(|| libm::log(d * v))
    });
    accepted.unwrap_or_default() + libm::log(uniform(key.with(0))) / alpha
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: MixingKey = MixingKey { seed: 3, epoch: 1, step: 4, shard: 2 };

    fn batch() -> Batch {
        let shape = [5, 2, 6, 7];
        let images = (0..shape.iter().product()).map(|i: usize| (i * 7919 % 101) as f32).collect();
        Batch { images, labels: vec![0, 1, 2, 3, 4], shape }
    }

    fn mixed(mixtures: Mixtures, key: MixingKey) -> (Batch, Mixing) {
        let mut batch = batch();
        let mixing = mixtures.mix(key, &mut batch).unwrap();
        (batch, mixing)
    }

    /// Each pixel by the definitions, one by one.
    #[test]
    fn every_pixel_is_that_of_the_definition() {
        let plain = batch();
        let at = |batch: &Batch, n: usize, c: usize, y: usize, x: usize| {
            batch.images[((n * 2 + c) * 6 + y) * 7 + x]
        };
        let places = || {
            (0..5).flat_map(|n| {
                (0..2).flat_map(move |c| (0..6).flat_map(move |y| (0..7).map(move |x| (n, c, y, x))))
            })
        };
        for seed in 0..20 {
            let (blended, mixing) =
                mixed(Mixtures { mixup: Some(0.4), cutmix: None }, MixingKey { seed, ..KEY });
            let own = mixing.own_share as f32;
            for (n, c, y, x) in places() {
                let expected =
                    own * at(&plain, n, c, y, x) + (1.0 - own) * at(&plain, mixing.partners[n], c, y, x);
                assert_eq!(at(&blended, n, c, y, x), expected);
            }
            let (cut, mixing) = mixed(Mixtures { mixup: None, cutmix: Some(1.0) }, MixingKey { seed, ..KEY });
            let [rows, columns] = mixing.cut.clone().unwrap();
            for (n, c, y, x) in places() {
                let is_cut = rows.contains(&y) && columns.contains(&x);
                let source = if is_cut { mixing.partners[n] } else { n };
                assert_eq!(at(&cut, n, c, y, x), at(&plain, source, c, y, x));
            }
            let kept = 42 - rows.len() * columns.len();
            assert!((mixing.own_share - kept as f64 / 42.0).abs() < 1e-12);
            assert_eq!((cut.labels, blended.labels), (plain.labels.clone(), plain.labels.clone()));
        }
    }

    #[test]
    fn a_mixture_is_a_function_of_its_place_and_partners_are_a_permutation() {
        let both = Mixtures { mixup: Some(0.2), cutmix: Some(1.0) };
        assert_eq!(mixed(both, KEY), mixed(both, KEY));
        for other in [
            MixingKey { seed: 4, ..KEY },
            MixingKey { epoch: 2, ..KEY },
            MixingKey { step: 5, ..KEY },
            MixingKey { shard: 3, ..KEY },
        ] {
            assert_ne!(mixed(both, KEY).1, mixed(both, other).1);
        }
        let cuts =
            (0..400).filter(|seed| mixed(both, MixingKey { seed: *seed, ..KEY }).1.cut.is_some()).count();
        assert!((150..250).contains(&cuts), "{cuts}");
        let mut partners = mixed(both, KEY).1.partners;
        partners.sort_unstable();
        assert_eq!(partners, [0, 1, 2, 3, 4]);
        assert_eq!(Mixtures::default().mix(KEY, &mut batch()), None);
        let mut none = Batch { images: Vec::new(), labels: Vec::new(), shape: [0, 2, 6, 7] };
        assert!(both.mix(KEY, &mut none).unwrap().partners.is_empty());
    }

    /// Beta(α, α) has the mean 1/2, the variance 1 / (4 (2α + 1)), and is symmetric.
    #[test]
    fn shares_have_the_moments_of_their_distribution() {
        let count = 40_000;
        for alpha in [0.01, 0.2, 1.0, 4.0, 1000.0] {
            let shares: Vec<f64> = (0..count).map(|n| beta(Key::new(5).with(n), alpha)).collect();
            assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)));
            let moment =
                |power| shares.iter().map(|share| (share - 0.5).powi(power)).sum::<f64>() / count as f64;
            let variance = 1.0 / (4.0 * (2.0 * alpha + 1.0));
            assert!(moment(1).abs() < 0.01 && moment(3).abs() < 0.005, "{alpha}: {}", moment(1));
            assert!((moment(2) / variance - 1.0).abs() < 0.03, "{alpha}: {} {variance}", moment(2));
        }
    }
}
