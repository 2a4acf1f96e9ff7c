//! Random crop and flip, keyed by sample.
//!
//! The alteration of a training image depends on (seed, epoch, its index in the data set) and nothing
//! else. A worker that takes over another's samples, or prepares them earlier or later, therefore gets the
//! same pixels.

use kolo_sampler::key::Key;

/// Alterations of training images that do not change the class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Augment {
    /// Maximum shift of the image in each direction, in pixels; the uncovered pixels are black. 0: no shift.
    pub crop_padding: u8,
    /// True if a random half of the images is mirrored left to right.
    pub flip: bool,
}

/// All values that decide an alteration, except the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AugmentKey {
    /// Seed of the job.
    pub seed: u64,
    /// Epoch, from 0: each epoch alters the images differently.
    pub epoch: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Alteration {
    /// Shift in rows: pixel (y, x) of the result is pixel (y + dy, x + dx) of the image.
    pub dy: isize,
    /// Shift in columns.
    pub dx: isize,
    /// True if the result is mirrored after the shift.
    pub flip: bool,
}

impl Augment {
    /// Returns the alteration of the image `sample` (its index in the data set).
    pub(crate) fn alteration(&self, key: AugmentKey, sample: usize) -> Alteration {
        let key = Key::new(key.seed).with_str("augment").with(key.epoch).with(sample as u64);
        let padding = usize::from(self.crop_padding);
        let offset = |n| key.with(n).below(2 * padding + 1) as isize - padding as isize;
        Alteration { dy: offset(0), dx: offset(1), flip: self.flip && key.with(2).below(2) == 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Augment = Augment { crop_padding: 2, flip: true };

    #[test]
    fn every_alteration_is_about_as_frequent() {
        let key = AugmentKey { seed: 3, epoch: 1 };
        let mut counts = std::collections::HashMap::new();
        for sample in 0..50_000 {
            let Alteration { dy, dx, flip } = BOTH.alteration(key, sample);
            assert!(dy.abs() <= 2 && dx.abs() <= 2);
            *counts.entry((dy, dx, flip)).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 50);
        assert!(counts.values().all(|n| (850..1150).contains(n)), "{counts:?}");
    }

    #[test]
    fn epochs_and_seeds_differ() {
        let of = |seed, epoch| {
            let key = AugmentKey { seed, epoch };
            (0..100).map(|sample| BOTH.alteration(key, sample)).collect::<Vec<_>>()
        };
        assert_eq!(of(1, 1), of(1, 1));
        assert_ne!(of(1, 1), of(1, 2));
        assert_ne!(of(1, 1), of(2, 1));
    }

    #[test]
    fn nothing_allowed_is_nothing_done() {
        let (nothing, key) = (Augment::default(), AugmentKey { seed: 3, epoch: 1 });
        assert!((0..100).all(|sample| nothing.alteration(key, sample) == Alteration::default()));
    }
}
