//! The part of a picture that a model sees, and its size: torchvision's geometry for classification.
//!
//! In training, `RandomResizedCrop(size)` and `RandomHorizontalFlip`; in evaluation, `Resize(size * 256 /
//! 224)` and `CenterCrop(size)`. Instead of a generator's state, (seed, epoch, sample) decides what is
//! random.

use kolo_sampler::key::Key;

use crate::augment::AugmentKey;
use crate::resample::{Area, Picture};

/// Least and greatest share of the picture that a random part covers.
const SHARE: [f64; 2] = [0.08, 1.0];
/// Least and greatest ratio of its width to its height.
const RATIO: [f64; 2] = [3.0 / 4.0, 4.0 / 3.0];
/// Number of tries until the part in the center is taken.
const TRIES: u64 = 10;

/// Returns the length of the shorter side before the center of `size` pixels is cut out.
pub(crate) fn resized_side(size: usize) -> usize {
    size * 256 / 224
}

/// Returns the center of `size` (rows, columns) of the picture, which is resized to cover `covered` rows and
/// columns, no fewer than `size`, before.
pub(crate) fn centered(picture: Picture, covered: [usize; 2], size: [usize; 2]) -> Picture {
    let (width, height) = (picture.width, picture.height);
    let [rows, columns] = covered;
    let picture = match width * rows <= height * columns {
        true => picture.resized(columns, columns * height / width),
        false => picture.resized(rows * width / height, rows),
    };
    let margin = |length: usize, size: usize| halved_to_even(length - size);
    let (top, left) = (margin(picture.height, size[0]), margin(picture.width, size[1]));
    picture.crop(Area { top, left, height: size[0], width: size[1] })
}

/// Returns half of a number, rounded as Python does.
fn halved_to_even(number: usize) -> usize {
    number / 2 + usize::from(number % 4 == 3)
}

/// Returns a random part of the picture, resized, and mirrored at random.
pub(crate) fn altered(picture: &Picture, size: usize, key: AugmentKey, sample: usize) -> Picture {
    let key = Key::new(key.seed).with_str("resized crop").with(key.epoch).with(sample as u64);
    let mut part = picture.crop(random_area(picture.width, picture.height, key)).resized(size, size);
    if key.with(0).below(2) == 1 {
        mirror(&mut part);
    }
    part
}

fn mirror(picture: &mut Picture) {
    let channels = picture.channels;
    for row in picture.bytes.chunks_exact_mut(picture.width * channels) {
        row.reverse();
        row.chunks_exact_mut(channels).for_each(<[u8]>::reverse);
    }
}

fn random_area(width: usize, height: usize, key: Key) -> Area {
    let between = |[low, high]: [f64; 2], key: Key| low + (high - low) * key.unit();
    for number in 1..=TRIES {
        let key = key.with(number);
        let target = (width * height) as f64 * between(SHARE, key.with(0));
        let ratio = libm::exp(between(RATIO.map(libm::log), key.with(1)));
        let side = |area: f64| area.sqrt().round_ties_even() as usize;
        let part = (side(target * ratio), side(target / ratio));
        if (1..=width).contains(&part.0) && (1..=height).contains(&part.1) {
            let (left, top) = (key.with(2).below(width - part.0 + 1), key.with(3).below(height - part.1 + 1));
            return Area { top, left, height: part.1, width: part.0 };
        }
    }
    let ratio = width as f64 / height as f64;
    let (width_cut, height_cut) = if ratio < RATIO[0] {
        (width, (width as f64 / RATIO[0]).round_ties_even() as usize)
    } else if ratio > RATIO[1] {
        ((height as f64 * RATIO[1]).round_ties_even() as usize, height)
    } else {
        (width, height)
    };
    let (top, left) = ((height - height_cut) / 2, (width - width_cut) / 2);
    Area { top, left, height: height_cut, width: width_cut }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A picture whose pixels are their column and their row.
    fn coordinates(width: usize, height: usize) -> Picture {
        let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        let bytes = pixels.flat_map(|(x, y)| [x as u8, y as u8, 0]).collect();
        Picture { channels: 3, width, height, bytes }
    }

    #[test]
    fn the_center_is_cut_out_of_the_resized_picture() {
        assert_eq!([224, 32, 7, 1].map(resized_side), [256, 36, 8, 1]);
        // Nothing is resized where the shorter side has the right length already: 9 × 8 pixels.
        let center = centered(coordinates(9, 8), [8; 2], [7; 2]);
        assert_eq!((center.width, center.height), (7, 7));
        assert_eq!(center.bytes[..3], [1, 0, 0], "a margin of 2 / 2 columns and 1 / 2 rows, to the even 0");
        assert_eq!((0..8).map(halved_to_even).collect::<Vec<_>>(), [0, 0, 1, 2, 2, 2, 3, 4]);
        for (width, height) in [(1, 1), (3, 200), (500, 4), (333, 100)] {
            let center = centered(coordinates(width, height), [36; 2], [32; 2]);
            assert_eq!((center.width, center.height, center.bytes.len()), (32, 32, 32 * 32 * 3));
            let wide = centered(coordinates(width, height), [3, 9], [3, 9]);
            assert_eq!((wide.width, wide.height), (9, 3));
        }
    }

    #[test]
    fn random_parts_have_torchvisions_shares_and_ratios() {
        let mut shares = 0.0;
        for sample in 0..4_000 {
            let area = random_area(400, 300, Key::new(3).with(sample));
            assert!(area.left + area.width <= 400 && area.top + area.height <= 300, "{area:?}");
            let share = (area.width * area.height) as f64 / 120_000.0;
            let ratio = area.width as f64 / area.height as f64;
            assert!((0.079..=1.0).contains(&share) && (0.74..1.35).contains(&ratio), "{area:?}");
            shares += share;
        }
        // Areas that do not fit are drawn again, so large ones are rarer.
        assert!((0.40..0.54).contains(&(shares / 4_000.0)), "{}", shares / 4_000.0);
        // Nothing of the right ratio fits in: the center.
        let narrow = random_area(2, 900, Key::new(3));
        assert!(narrow.width <= 2 && narrow.height <= 3, "{narrow:?}");
    }

    #[test]
    fn epochs_samples_and_seeds_differ_and_half_of_the_parts_are_mirrored() {
        let picture = coordinates(40, 30);
        let of = |seed, epoch, sample| altered(&picture, 8, AugmentKey { seed, epoch }, sample);
        assert_eq!(of(1, 2, 3), of(1, 2, 3));
        assert!(of(1, 2, 3) != of(1, 2, 4) && of(1, 2, 3) != of(1, 3, 3) && of(1, 2, 3) != of(2, 2, 3));
        // Columns fall from left to right in a mirrored part.
        let mirrored = (0..400).filter(|sample| {
            let part = of(0, 0, *sample);
            part.bytes[0] > part.bytes[21]
        });
        assert!((150..250).contains(&mirrored.count()));
    }
}
