//! Pictures as they are decoded, and Pillow's bilinear `Image.resize`, bit for bit, which torchvision's
//! `Resize` calls: a triangle filter that grows with the reduction, rounded to bytes after each axis.

/// Bits behind the binary point of a filter's weights.
const PRECISION: u32 = 32 - 8 - 2;

/// A decoded picture: rows of pixels, each of which has its channels side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Picture {
    pub channels: usize,
    pub width: usize,
    pub height: usize,
    pub bytes: Vec<u8>,
}

/// A part of a picture, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub top: usize,
    pub left: usize,
    pub height: usize,
    pub width: usize,
}

impl Picture {
    /// Copies a part of the picture.
    pub fn crop(&self, area: Area) -> Picture {
        let Area { top, left, height, width } = area;
        let row = |y: usize| &self.bytes[((top + y) * self.width + left) * self.channels..];
        let bytes = (0..height).flat_map(|y| &row(y)[..width * self.channels]).copied().collect();
        Picture { channels: self.channels, width, height, bytes }
    }

    /// Resizes the picture; an axis that keeps its length is not filtered.
    pub fn resized(self, width: usize, height: usize) -> Picture {
        self.resized_across(width).resized_down(height)
    }

    fn resized_across(self, width: usize) -> Picture {
        if width == self.width {
            return self;
        }
        let channels = self.channels;
        let taps = taps(self.width, width);
        let mut bytes = Vec::with_capacity(width * self.height * channels);
        for row in self.bytes.chunks_exact(self.width * channels) {
            for Taps { first, weights } in &taps {
                let pixels = &row[first * channels..];
                for channel in 0..channels {
                    let values = pixels[channel..].iter().step_by(channels);
                    let sum = values.zip(weights).map(|(value, weight)| i32::from(*value) * weight);
                    bytes.push(rounded(sum.sum()));
                }
            }
        }
        Picture { width, bytes, ..self }
    }

    fn resized_down(self, height: usize) -> Picture {
        if height == self.height {
            return self;
        }
        let length = self.width * self.channels;
        let mut bytes = Vec::with_capacity(height * length);
        let mut sums = vec![0; length];
        for Taps { first, weights } in taps(self.height, height) {
            sums.fill(0);
            for (row, weight) in self.bytes[first * length..].chunks_exact(length).zip(weights) {
                for (sum, value) in sums.iter_mut().zip(row) {
                    *sum += i32::from(*value) * weight;
                }
            }
            bytes.extend(sums.iter().map(|sum| rounded(*sum)));
        }
        Picture { height, bytes, ..self }
    }
}

/// Weights of the pixels that make one pixel of the result.
struct Taps {
    first: usize,
    weights: Vec<i32>,
}

/// Returns the weights of each of `to` pixels that an axis of `from` pixels becomes.
fn taps(from: usize, to: usize) -> Vec<Taps> {
    let scale = from as f64 / to as f64;
    let stretch = scale.max(1.0);
    let of = |at: usize| {
        let center = (at as f64 + 0.5) * scale;
        // Conversions to integers cut off, also below zero.
        let first = (center - stretch + 0.5).max(0.0) as usize;
        let end = ((center + stretch + 0.5) as usize).min(from);
        let triangle = |x: f64| if x.abs() < 1.0 { 1.0 - x.abs() } else { 0.0 };
        let weights: Vec<f64> =
            (first..end).map(|x| triangle((x as f64 - center + 0.5) * (1.0 / stretch))).collect();
        let total: f64 = weights.iter().sum();
        let fixed = |weight: f64| (0.5 + weight / total * f64::from(1 << PRECISION)) as i32;
        Taps { first, weights: weights.into_iter().map(fixed).collect() }
    };
    (0..to).map(of).collect()
}

fn rounded(sum: i32) -> u8 {
    ((sum + (1 << (PRECISION - 1))) >> PRECISION).clamp(0, 255) as u8
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A picture of three channels without two equal rows.
    pub(crate) fn picture() -> Picture {
        let pixel = |i: usize| [(i * 37) as u8, (i * 91 + 13) as u8, (i * i * 7) as u8];
        Picture { channels: 3, width: 7, height: 5, bytes: (0..35).flat_map(pixel).collect() }
    }

    /// Values of `Image.resize(…, Image.BILINEAR)` of Pillow 13.0.0.
    #[test]
    fn resized_pictures_are_pillows() {
        let smaller = [35, 121, 68, 114, 126, 120, 193, 139, 191, 41, 115, 99, 120, 120, 123, 199, 133, 163];
        assert_eq!(picture().resized(3, 2).bytes, smaller);
        let narrower = picture().resized(4, 5);
        assert_eq!((narrower.width, narrower.height), (4, 5));
        assert_eq!(narrower.bytes[..12], [19, 61, 4, 77, 131, 34, 145, 114, 111, 203, 121, 212]);
        let larger = picture().resized(9, 11).bytes;
        assert_eq!(larger.len(), 9 * 11 * 3);
        assert_eq!(larger[27..39], [1, 36, 16, 26, 97, 33, 54, 146, 37, 83, 145, 45]);
        assert_eq!(larger[larger.len() - 5..], [145, 185, 234, 35, 156]);
        assert_eq!(picture().resized(7, 5), picture());
    }

    #[test]
    fn a_part_is_cut_out_before_it_is_resized() {
        let part = picture().crop(Area { top: 1, left: 1, height: 3, width: 5 });
        assert_eq!(part.bytes[..3], picture().bytes[24..27]);
        let resized = part.resized(4, 4).bytes;
        assert_eq!(resized[..12], [49, 188, 158, 92, 102, 110, 136, 208, 124, 179, 122, 200]);
        assert_eq!(resized[42..], [142, 202, 93, 185, 116, 99]);
    }
}
