//! Data sets of images in memory.

use crate::augment::{Augment, AugmentKey};
use crate::batch::{Batch, Normalize};
use crate::dataset::{DataSet, ImageDataSet, SampleShape};
use crate::error::DataError;
use crate::fingerprint::{ContentHash, Fingerprint};
use crate::images::Images;
use crate::part::Part;
use crate::preprocessing::{Preprocessing, margins};

/// Images to train on and to test on, normalized by the statistics of the training images.
#[derive(Clone, Debug)]
pub struct ImageSet {
    train: Images,
    test: Images,
    /// No images.
    validation: Images,
    normalize: Normalize,
    augment: Augment,
    preprocessing: Preprocessing,
}

impl ImageSet {
    /// Creates a data set of `train` and `test`, which must have the same size and channels and only
    /// labels below `classes`. `augment` limits the alterations of training images.
    ///
    /// # Errors
    ///
    /// The sizes differ, or a label or the number of pixels is wrong.
    pub fn new(train: Images, test: Images, classes: usize, augment: Augment) -> Result<Self, DataError> {
        Self::spread([train, test], [0, 0], classes, augment)
    }

    /// Creates a data set as [`ImageSet::new`] does, but first [spreads](Images::spread) the images to
    /// `channels` and `side` x `side` pixels.
    /// Fails as [`ImageSet::new`] does.
    pub fn spread(
        [train, test]: [Images; 2],
        [channels, side]: [usize; 2],
        classes: usize,
        augment: Augment,
    ) -> Result<Self, DataError> {
        check(Part::Train, &train, classes)?;
        check(Part::Test, &test, classes)?;
        let size = |images: &Images| [images.channels, images.height, images.width];
        let (image_size, test_size) = (size(&train), size(&test));
        if image_size != test_size {
            return Err(DataError::UnequalSizes { train: image_size, test: test_size });
        }
        let [train, test] = [train, test].map(|images| images.spread(channels, side));
        let (mean, std) = train.mean_and_std();
        let input_size = size(&train);
        let normalize = Normalize::new(&mean, &std);
        let preprocessing = Preprocessing {
            resize: None,
            image_size,
            input_size,
            padding: margins([image_size[1], image_size[2]], [input_size[1], input_size[2]]),
            mean,
            std,
            num_classes: classes,
            label_names: Vec::new(),
            table: None,
        };
        let validation = Images { pixels: Vec::new(), labels: Vec::new(), ..train };
        Ok(ImageSet { train, test, validation, normalize, augment, preprocessing })
    }

    /// Sets the names of the classes, by label.
    pub fn with_label_names<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.preprocessing.label_names = names.into_iter().map(String::from).collect();
        self
    }

    /// Returns the images of a part, as bytes.
    pub fn images(&self, part: Part) -> &Images {
        match part {
            Part::Train => &self.train,
            Part::Test => &self.test,
            Part::Validation => &self.validation,
        }
    }
}

fn check(part: Part, images: &Images, classes: usize) -> Result<(), DataError> {
    let (found, expected) = (images.pixels.len(), images.len().saturating_mul(images.image_bytes()));
    if found != expected {
        return Err(DataError::Pixels { part, found, expected });
    }
    let wrong = images.labels.iter().position(|label| *label as usize >= classes);
    match wrong {
        Some(index) => Err(DataError::LabelInMemory { part, index, label: images.labels[index], classes }),
        None => Ok(()),
    }
}

impl ImageDataSet for ImageSet {
    fn shape(&self) -> SampleShape {
        let Images { channels, height, width, .. } = self.train;
        SampleShape { channels, height, width, classes: self.preprocessing.num_classes, is_text: false }
    }
}

impl DataSet for ImageSet {
    type Batch = Batch;

    fn samples(&self, part: Part) -> usize {
        self.images(part).len()
    }

    fn batch(&self, part: Part, indices: &[usize], augment: Option<AugmentKey>) -> Result<Batch, DataError> {
        Ok(self.images(part).batch(indices, &self.normalize, augment.map(|key| (self.augment, key))))
    }

    /// Returns the fingerprint of every image and label as they are in memory.
    fn fingerprint(&self, part: Part) -> Fingerprint {
        let (images, how, mut hash) = (self.images(part), &self.preprocessing, ContentHash::new());
        let Augment { crop_padding, flip } = self.augment;
        hash.numbers(&[images.channels, images.height, images.width, how.num_classes]);
        hash.numbers(&[u64::from(crop_padding), flip.into()]);
        hash.numbers(&how.mean);
        hash.numbers(&how.std);
        match images.labels.iter().map(|label| u8::try_from(*label)).collect::<Result<Vec<u8>, _>>() {
            // As versions with labels of a byte hashed them.
            Ok(labels) => hash.bytes(&labels),
            Err(_) => hash.numbers(&images.labels),
        }
        hash.bytes(&images.pixels);
        Fingerprint::of_all(images.len(), hash)
    }

    fn label(&self, part: Part, index: usize) -> Option<u32> {
        self.images(part).labels.get(index).copied()
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
            labels: (0..count).map(|i| (i % 2) as u32).collect(),
        };
        let of = |train: Images, augment| {
            let test = Images { height: train.height, width: train.width, ..images(2) };
            let set = ImageSet::new(train, test, 2, augment).unwrap();
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
    fn images_that_do_not_belong_together_are_refused() {
        let images = |height: usize, labels: &[u32]| Images {
            channels: 1,
            height,
            width: 4,
            pixels: vec![0; labels.len() * height * 4],
            labels: labels.into(),
        };
        let refused = |train: Images, test: Images| {
            ImageSet::new(train, test, 2, Augment::default()).unwrap_err().to_string()
        };
        let sizes = refused(images(3, &[0, 1]), images(5, &[0]));
        assert!(sizes.contains("1x3x4") && sizes.contains("1x5x4"), "{sizes}");
        let label = refused(images(3, &[0, 1]), images(3, &[1, 0, 2]));
        assert!(label.contains("test image 2 has the label 2, but there are 2 classes"), "{label}");
        let mut short = images(3, &[0, 1]);
        short.pixels.pop();
        let pixels = refused(short, images(3, &[0]));
        assert!(pixels.contains("the training images have 23 pixels, but their labels need 24"), "{pixels}");
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
        let set = ImageSet::spread([images(5), images(2)], [3, 7], 1, Augment::default()).unwrap();
        let how = set.preprocessing().unwrap();
        assert_eq!((how.image_size, how.input_size, how.padding), ([1, 3, 4], [3, 7, 7], [1, 2, 2, 2]));
        let batch = set.batch(Part::Test, &[1], None).unwrap();
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
