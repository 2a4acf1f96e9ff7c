//! Data sets of images in memory.

use crate::augment::{Augment, AugmentKey};
use crate::batch::{Batch, Normalise};
use crate::dataset::{DataSet, ImageDataSet, Part, SampleShape};
use crate::images::Images;

/// Images to train on and to test on, normalised by the statistics of those to train on.
#[derive(Clone, Debug)]
pub struct ImageSet {
    train: Images,
    test: Images,
    classes: usize,
    normalise: Normalise,
    augment: Augment,
}

impl ImageSet {
    /// A data set of `train` and `test`, which must have the same size and channels and only labels below
    /// `classes`. Training images may be altered as `augment` says.
    pub fn new(train: Images, test: Images, classes: usize, augment: Augment) -> Self {
        let (mean, std) = train.mean_and_std();
        ImageSet { train, test, classes, normalise: Normalise::new(&mean, &std), augment }
    }

    /// The images of a part, as bytes.
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
        SampleShape { channels, height, width, classes: self.classes }
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
}
