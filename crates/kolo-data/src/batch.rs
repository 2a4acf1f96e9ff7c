//! From bytes to the numbers that a network takes: normalized and altered.

use crate::augment::{Alteration, Augment, AugmentKey};
use crate::images::Images;

/// Lookup tables that normalize bytes: `(byte / 255 - mean) / std` for each of the 256 values of each
/// channel.
#[derive(Clone, Debug)]
pub struct Normalize {
    tables: Vec<[f32; 256]>,
}

impl Normalize {
    /// Builds the tables from the mean and the standard deviation of each channel, where pixels range from
    /// 0 to 1. The shorter slice decides the number of channels.
    pub fn new(mean: &[f32], std: &[f32]) -> Self {
        let table =
            |(mean, std): (&f32, &f32)| std::array::from_fn(|byte| (byte as f32 / 255.0 - mean) / std);
        Self { tables: mean.iter().zip(std).map(table).collect() }
    }

    /// Writes an image whose pixels have their channels side by side, plane by plane.
    pub(crate) fn write_interleaved(&self, bytes: &[u8], out: &mut [f32]) {
        let channels = self.tables.len();
        for (channel, plane) in out.chunks_exact_mut(bytes.len() / channels).enumerate() {
            let values = bytes[channel..].iter().step_by(channels);
            plane
                .iter_mut()
                .zip(values)
                .for_each(|(out, value)| *out = self.tables[channel][usize::from(*value)]);
        }
    }
}

/// Images as numbers, ready for a network.
#[derive(Clone, PartialEq)]
pub struct Batch {
    /// Normalized pixels, `shape` flattened.
    pub images: Vec<f32>,
    /// One class per image.
    pub labels: Vec<u32>,
    /// `[batch, channels, height, width]`; batch may be 0.
    pub shape: [usize; 4],
}

kolo_schedule::opaque_debug!(Batch { shape });

impl Batch {
    /// Number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Returns true if the batch has no images.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }
}

impl Images {
    /// Returns the images at `indices`, normalized, and altered if `augment` is given. The result depends
    /// on the arguments only.
    ///
    /// # Panics
    ///
    /// If an index is not below [`len`](Images::len), or `normalize` has fewer channels than the images.
    pub fn batch(
        &self,
        indices: &[usize],
        normalize: &Normalize,
        augment: Option<(Augment, AugmentKey)>,
    ) -> Batch {
        assert!(
            normalize.tables.len() >= self.channels,
            "statistics of {} channels for images of {}",
            normalize.tables.len(),
            self.channels
        );
        let size = self.image_bytes();
        let mut images = vec![0.0; indices.len() * size];
        for (&index, out) in indices.iter().zip(images.chunks_exact_mut(size.max(1))) {
            let alter = |(augment, key): (Augment, AugmentKey)| augment.alteration(key, index);
            let alteration = augment.map_or_else(Alteration::default, alter);
            self.write(index, alteration, normalize, out);
        }
        let labels = indices.iter().map(|&index| self.labels[index]).collect();
        Batch { images, labels, shape: [indices.len(), self.channels, self.height, self.width] }
    }

    /// Writes one image, plane by plane and row by row; a row is a run of pixels between two black margins.
    fn write(&self, index: usize, alteration: Alteration, normalize: &Normalize, out: &mut [f32]) {
        let Alteration { dy, dx, flip } = alteration;
        let (height, width, size) = (self.height, self.width, self.image_bytes());
        let image = &self.pixels[index * size..][..size];
        let left = (-dx).clamp(0, width as isize) as usize;
        let right = (width as isize - dx).clamp(left as isize, width as isize) as usize;
        let planes = image.chunks_exact(height * width).zip(out.chunks_exact_mut(height * width));
        for ((plane, out), table) in planes.zip(&normalize.tables) {
            for (y, out) in out.chunks_exact_mut(width).enumerate() {
                let y = y as isize + dy;
                if !(0..height as isize).contains(&y) {
                    out.fill(table[0]);
                    continue;
                }
                let row = &plane[y as usize * width..][..width];
                let from = (left as isize + dx).clamp(0, width as isize) as usize;
                out[..left].fill(table[0]);
                out[right..].fill(table[0]);
                for (out, &pixel) in out[left..right].iter_mut().zip(&row[from..]) {
                    *out = table[usize::from(pixel)];
                }
                if flip {
                    out.reverse();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten images of 2 channels and 3x4 pixels; no two pixels are equal.
    fn images() -> Images {
        Images { channels: 2, height: 3, width: 4, pixels: (0..240).collect(), labels: (0..10).collect() }
    }

    fn unchanged() -> Normalize {
        Normalize::new(&[0.0; 2], &[1.0 / 255.0; 2])
    }

    /// The definition of an alteration, one pixel at a time.
    fn expected(images: &Images, index: usize, alteration: Alteration) -> Vec<f32> {
        let (h, w) = (images.height as isize, images.width as isize);
        let mut out = Vec::new();
        for c in 0..images.channels as isize {
            for y in 0..h {
                for x in 0..w {
                    let x = if alteration.flip { w - 1 - x } else { x };
                    let (y, x) = (y + alteration.dy, x + alteration.dx);
                    let inside = (0..h).contains(&y) && (0..w).contains(&x);
                    let at = ((index as isize * 2 + c) * h + y) * w + x;
                    out.push(if inside { f32::from(images.pixels[at as usize]) } else { 0.0 });
                }
            }
        }
        out
    }

    #[test]
    fn every_alteration_is_as_defined() {
        let images = images();
        for (dy, dx, flip) in
            (-5..=5).flat_map(|dy| (-5..=5).flat_map(move |dx| [(dy, dx, false), (dy, dx, true)]))
        {
            let alteration = Alteration { dy, dx, flip };
            let mut out = vec![f32::NAN; 24];
            images.write(3, alteration, &unchanged(), &mut out);
            let rounded: Vec<f32> = out.iter().map(|v| v.round()).collect();
            assert_eq!(rounded, expected(&images, 3, alteration), "{alteration:?}");
        }
    }

    #[test]
    fn channels_are_normalized_separately() {
        let batch = images().batch(&[0, 0], &Normalize::new(&[0.0, 1.0], &[1.0, 0.5]), None);
        assert_eq!(batch.shape, [2, 2, 3, 4]);
        assert_eq!(batch.labels, [0, 0]);
        assert_eq!(batch.images[5], 5.0 / 255.0);
        assert_eq!(batch.images[12], (12.0 / 255.0 - 1.0) / 0.5);
        assert_eq!(batch.images[..24], batch.images[24..]);
    }

    #[test]
    fn a_sample_is_the_same_in_every_batch() {
        let images = images();
        let (both, key) = (Augment { crop_padding: 2, flip: true }, AugmentKey { seed: 1, epoch: 2 });
        let together = images.batch(&[4, 7, 9], &unchanged(), Some((both, key)));
        let alone = images.batch(&[7], &unchanged(), Some((both, key)));
        assert_eq!(together.images[24..48], alone.images);
        let later = AugmentKey { epoch: 3, ..key };
        let all: Vec<usize> = (0..10).collect();
        assert_ne!(
            images.batch(&all, &unchanged(), Some((both, key))),
            images.batch(&all, &unchanged(), Some((both, later)))
        );
    }
}
