//! The shape in which a data set's images reach the network.

use crate::images::Images;

/// What is made of the images after reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// They stay as they are in the file.
    AsStored,
    /// Black margins up to 32x32 and grey repeated as three channels: what networks made for colour pictures
    /// take.
    Colour32,
}

impl Shape {
    /// Images in this shape.
    pub(crate) fn apply(self, images: Images) -> Images {
        match self {
            Self::AsStored => images,
            Self::Colour32 => spread(images, 3, 32),
        }
    }
}

/// Images at least `side` high and wide, in the middle of black, and with at least `channels`, the first one
/// repeated.
fn spread(images: Images, channels: usize, side: usize) -> Images {
    let Images { channels: old_channels, height: old_height, width: old_width, pixels, labels } = images;
    let (channels, height, width) = (channels.max(old_channels), side.max(old_height), side.max(old_width));
    let (top, left) = ((height - old_height) / 2, (width - old_width) / 2);
    let old_plane = old_height * old_width;
    let mut out = vec![0; labels.len() * channels * height * width];
    let planes = pixels.chunks_exact(old_plane * old_channels).flat_map(|image| {
        (0..channels).map(move |c| &image[if c < old_channels { c } else { 0 } * old_plane..][..old_plane])
    });
    for (plane, out) in planes.zip(out.chunks_exact_mut(height * width)) {
        for (row, out) in plane.chunks_exact(old_width).zip(out.chunks_exact_mut(width).skip(top)) {
            out[left..left + old_width].copy_from_slice(row);
        }
    }
    Images { channels, height, width, pixels: out, labels }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grey_images_are_centred_and_repeated() {
        let images =
            Images { channels: 1, height: 28, width: 28, pixels: vec![9; 2 * 28 * 28], labels: vec![1, 2] };
        let spread = Shape::Colour32.apply(images.clone());
        assert_eq!(
            (spread.channels, spread.height, spread.width, &spread.labels),
            (3, 32, 32, &images.labels)
        );
        assert_eq!(spread.pixels.len(), 2 * 3 * 32 * 32);
        let inside = |i: usize| (2..30).contains(&(i / 32 % 32)) && (2..30).contains(&(i % 32));
        assert!(spread.pixels.iter().enumerate().all(|(i, &pixel)| pixel == if inside(i) { 9 } else { 0 }));
        assert_eq!(Shape::AsStored.apply(images.clone()), images);
    }

    #[test]
    fn colour_images_of_the_right_size_stay() {
        let pixels: Vec<u8> = (0..3 * 32 * 32).map(|i| i as u8).collect();
        let images = Images { channels: 3, height: 32, width: 32, pixels, labels: vec![1] };
        assert_eq!(Shape::Colour32.apply(images.clone()), images);
    }
}
