//! Images and data sets in memory: bytes, as they came from the file. They become numbers only in a
//! [`Batch`](crate::Batch).

use crate::augment::Augment;

/// Images of one size with their labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// 1 for grey, 3 for colour.
    pub channels: usize,
    /// Rows of an image.
    pub height: usize,
    /// Columns of an image.
    pub width: usize,
    /// All images one after another, each channel by channel, row by row: `[len, channels, height, width]`.
    pub pixels: Vec<u8>,
    /// One class an image, from 0.
    pub labels: Vec<u8>,
}

impl Images {
    /// Number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Bytes of one image.
    pub fn image_bytes(&self) -> usize {
        self.channels * self.height * self.width
    }

    /// Mean and standard deviation of each channel over all pixels, where a pixel is a number from 0 to 1.
    ///
    /// Counted in integers, so the order of the pixels does not matter. A channel of one single value has
    /// deviation 1, so that dividing by it is harmless.
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

/// A data set: what to train on, what to test on, and how its images are prepared.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// Its name in the table.
    pub name: &'static str,
    /// Number of classes; every label is below.
    pub classes: usize,
    /// Images to train on.
    pub train: Images,
    /// Images to test on.
    pub test: Images,
    /// Mean of each channel of the training images, of 0 to 1.
    pub mean: Vec<f32>,
    /// Standard deviation of each channel of the training images, of 0 to 1.
    pub std: Vec<f32>,
    /// How training images may be altered.
    pub augment: Augment,
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
}
