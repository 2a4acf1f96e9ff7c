//! Images in memory: bytes as they are in the file. They become numbers only in a [`Batch`](crate::Batch).

use crate::preprocessing::margins;

/// Images of one size with their labels.
#[derive(Clone, PartialEq, Eq)]
pub struct Images {
    /// Number of channels: 1 for gray, 3 for color.
    pub channels: usize,
    /// Rows of an image.
    pub height: usize,
    /// Columns of an image.
    pub width: usize,
    /// All images one after another, channel by channel, row by row: `[len, channels, height, width]`.
    pub pixels: Vec<u8>,
    /// One class per image, from 0.
    pub labels: Vec<u32>,
}

kolo_schedule::opaque_debug!(Images { channels, height, width });

impl Images {
    /// Number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Returns true if there are no images.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Number of bytes of one image.
    pub fn image_bytes(&self) -> usize {
        self.channels * self.height * self.width
    }

    /// Returns mean and standard deviation of each channel over all pixels, where a pixel is a number from
    /// 0 to 1.
    ///
    /// The sums are integers, so the order of the pixels does not matter. A channel with a single value
    /// gets standard deviation 1, so that dividing by it is harmless.
    pub fn mean_and_std(&self) -> (Vec<f32>, Vec<f32>) {
        let plane = self.height * self.width;
        let mut histograms = vec![[0u64; 256]; self.channels];
        for image in self.pixels.chunks_exact(self.image_bytes().max(1)) {
            for (histogram, plane) in histograms.iter_mut().zip(image.chunks_exact(plane)) {
                plane.iter().for_each(|&pixel| histogram[usize::from(pixel)] += 1);
            }
        }
        histograms.iter().map(mean_and_std).unzip()
    }

    /// Adds black margins up to `side` x `side` pixels and repeats the first channel up to `channels`, as
    /// networks made for color pictures need. Images that are already as large stay as they are.
    pub fn spread(self, channels: usize, side: usize) -> Images {
        if self.channels >= channels && self.height.min(self.width) >= side {
            return self;
        }
        let Images { channels: old_channels, height: old_height, width: old_width, pixels, labels } = self;
        let (channels, height, width) =
            (channels.max(old_channels), side.max(old_height), side.max(old_width));
        let [left, top, ..] = margins([old_height, old_width], [height, width]);
        let old_plane = old_height * old_width;
        let mut out = vec![0; labels.len() * channels * height * width];
        let planes = pixels.chunks_exact(old_plane * old_channels).flat_map(|image| {
            (0..channels)
                .map(move |c| &image[if c < old_channels { c } else { 0 } * old_plane..][..old_plane])
        });
        for (plane, out) in planes.zip(out.chunks_exact_mut(height * width)) {
            for (row, out) in plane.chunks_exact(old_width).zip(out.chunks_exact_mut(width).skip(top)) {
                out[left..left + old_width].copy_from_slice(row);
            }
        }
        Images { channels, height, width, pixels: out, labels }
    }
}

fn mean_and_std(histogram: &[u64; 256]) -> (f32, f32) {
    let sum = |power: u32| -> f64 {
        histogram.iter().zip(0u64..).map(|(count, value)| count * value.pow(power)).sum::<u64>() as f64
    };
    let count = sum(0).max(1.0);
    let mean = sum(1) / count;
    let variance = sum(2) / count - mean * mean;
    let std = if variance > 0.0 { variance.sqrt() } else { 255.0 };
    ((mean / 255.0) as f32, (std / 255.0) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_deviation_are_per_channel() {
        let images = Images {
            channels: 2,
            height: 1,
            width: 2,
            pixels: vec![0, 255, 7, 7, 255, 0, 7, 7],
            labels: vec![0, 1],
        };
        let (mean, std) = images.mean_and_std();
        assert_eq!(mean, [0.5, 7.0 / 255.0]);
        assert_eq!(std, [0.5, 1.0]);
    }

    #[test]
    fn no_images_have_harmless_statistics() {
        let images = Images { channels: 1, height: 2, width: 2, pixels: vec![], labels: vec![] };
        assert_eq!(images.mean_and_std(), (vec![0.0], vec![1.0]));
    }

    #[test]
    fn gray_images_are_centered_and_repeated() {
        let images =
            Images { channels: 1, height: 28, width: 28, pixels: vec![9; 2 * 28 * 28], labels: vec![1, 2] };
        let spread = images.clone().spread(3, 32);
        assert_eq!(
            (spread.channels, spread.height, spread.width, &spread.labels),
            (3, 32, 32, &images.labels)
        );
        assert_eq!(spread.pixels.len(), 2 * 3 * 32 * 32);
        let inside = |i: usize| (2..30).contains(&(i / 32 % 32)) && (2..30).contains(&(i % 32));
        assert!(spread.pixels.iter().enumerate().all(|(i, &pixel)| pixel == if inside(i) { 9 } else { 0 }));
    }

    #[test]
    fn color_images_of_the_right_size_stay() {
        let pixels: Vec<u8> = (0..3 * 32 * 32).map(|i| i as u8).collect();
        let images = Images { channels: 3, height: 32, width: 32, pixels, labels: vec![1] };
        assert_eq!(images.clone().spread(3, 32), images);
    }
}
