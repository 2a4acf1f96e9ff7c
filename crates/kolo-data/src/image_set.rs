//! Data sets of images in memory.

use crate::augment::{Augment, AugmentKey};
use crate::batch::{Batch, Normalise};
use crate::dataset::{DataSet, ImageDataSet, Part, SampleShape};
use crate::fingerprint::{ContentHash, Fingerprint};
use crate::images::Images;
use crate::preprocessing::{Preprocessing, margins};

/// Images to train on and to test on, normalized by the statistics of the training images.
#[derive(Clone, Debug)]
pub struct ImageSet {
    train: Images,
    test: Images,
    normalise: Normalise,
    augment: Augment,
    preprocessing: Preprocessing,
}

impl ImageSet {
    /// Creates a data set of `train` and `test`, which must have the same size and channels and only
    /// labels below `classes`. `augment` limits the alterations of training images.
    pub fn new(train: Images, test: Images, classes: usize, augment: Augment) -> Self {
        let size = [train.channels, train.height, train.width];
        Self::of_size(size, train, test, classes, augment)
    }

    /// Creates a data set as [`ImageSet::new`] does, but first [spreads](Images::spread) the images to
    /// `channels` and `side` x `side` pixels.
    pub fn spread(
        [train, test]: [Images; 2],
        [channels, side]: [usize; 2],
        classes: usize,
        augment: Augment,
    ) -> Self {
        let size = [train.channels, train.height, train.width];
        Self::of_size(size, train.spread(channels, side), test.spread(channels, side), classes, augment)
    }

    /// Sets the names of the classes, by label.
    pub fn with_label_names<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.preprocessing.label_names = names.into_iter().map(String::from).collect();
        self
    }

    /// Creates the data set; `size` is channels, rows and columns of an image before it was spread.
    fn of_size(size: [usize; 3], train: Images, test: Images, classes: usize, augment: Augment) -> Self {
        let (mean, std) = train.mean_and_std();
        let Images { channels, height, width, .. } = train;
        let normalise = Normalise::new(&mean, &std);
        let preprocessing = Preprocessing {
            image_size: size,
            input_size: [channels, height, width],
            padding: margins([size[1], size[2]], [height, width]),
            mean,
            std,
            num_classes: classes,
            label_names: Vec::new(),
        };
        ImageSet { train, test, normalise, augment, preprocessing }
    }

    /// Returns the images of a part, as bytes.
    pub fn images(&self, part: Part) -> &Images {
        match part {
            Part::Train => &self.train,
            Part::Test => &self.test,
        }
    }
}

impl ImageDataSet for ImageSet {
    fn shape(&self) -> SampleShape {
        let Images { channels, height, width, .. } = self.train;
        SampleShape { channels, height, width, classes: self.preprocessing.num_classes }
    }
}

impl DataSet for ImageSet {
    type Batch = Batch;

    fn samples(&self, part: Part) -> usize {
        self.images(part).len()
    }

    fn batch(&self, part: Part, indices: &[usize], augment: Option<AugmentKey>) -> Batch {
        self.images(part).batch(indices, &self.normalise, augment.map(|key| (self.augment, key)))
    }

    /// Returns the fingerprint of every image and label as they are in memory.
    fn fingerprint(&self, part: Part) -> Fingerprint {
        let (images, how, mut hash) = (self.images(part), &self.preprocessing, ContentHash::new());
        let Augment { crop_padding, flip } = self.augment;
        hash.numbers(&[images.channels, images.height, images.width, how.num_classes]);
        hash.numbers(&[u64::from(crop_padding), flip.into()]);
        hash.numbers(&how.mean);
        hash.numbers(&how.std);
        hash.bytes(&images.labels);
        hash.bytes(&images.pixels);
        Fingerprint::of_all(images.len(), hash)
    }

    fn preprocessing(&self) -> Option<Preprocessing> {
        Some(self.preprocessing.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_image_and_any_label_change_the_fingerprint() {
        let images = |count: usize| Images {
            channels: 1,
            height: 3,
            width: 4,
            pixels: (0..count * 12).map(|i| (i * 37) as u8).collect(),
            labels: (0..count).map(|i| (i % 2) as u8).collect(),
        };
        let of = |train: Images, augment| {
            let set = ImageSet::new(train, images(2), 2, augment);
            [Part::Train, Part::Test].map(|part| set.fingerprint(part))
        };
        let usual = of(images(200), Augment::default());
        assert_eq!(usual, of(images(200), Augment::default()));
        assert_eq!((usual[0].samples, usual[0].hashed, usual[1].samples), (200, 200, 2));
        let changed = |change: &dyn Fn(&mut Images)| {
            let mut other = images(200);
            change(&mut other);
            of(other, Augment::default())[0]
        };
        for at in [0, 77, 199] {
            assert_ne!(changed(&|images| images.labels[at] ^= 1), usual[0]);
            assert_ne!(changed(&|images| images.pixels.swap(12 * at, 12 * at + 1)), usual[0]);
        }
        // The same number of bytes in another shape.
        assert_ne!(changed(&|images| (images.height, images.width) = (4, 3)), usual[0]);
        assert_ne!(of(images(200), Augment { crop_padding: 2, flip: false })[0], usual[0]);
    }

    #[test]
    fn preprocessing_done_by_hand_gives_the_batch() {
        let images = |count: usize| Images {
            channels: 1,
            height: 3,
            width: 4,
            pixels: (0..count * 12).map(|i| (i * 37) as u8).collect(),
            labels: vec![0; count],
        };
        let set = ImageSet::spread([images(5), images(2)], [3, 7], 1, Augment::default());
        let how = set.preprocessing().unwrap();
        assert_eq!((how.image_size, how.input_size, how.padding), ([1, 3, 4], [3, 7, 7], [1, 2, 2, 2]));
        let batch = set.batch(Part::Test, &[1], None);
        let [left, top, ..] = how.padding;
        for (at, value) in batch.images.iter().enumerate() {
            let (channel, y, x) = (at / 49, at / 7 % 7, at % 7);
            let inside = (top..top + 3).contains(&y) && (left..left + 4).contains(&x);
            let byte = if inside { images(2).pixels[12 + (y - top) * 4 + x - left] } else { 0 };
            let number = (f32::from(byte) / 255.0 - how.mean[channel]) / how.std[channel];
            assert_eq!(*value, number, "channel {channel}, row {y}, column {x}");
        }
    }
}
