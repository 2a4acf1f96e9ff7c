//! [MNIST](https://yann.lecun.com/exdb/mnist/) (LeCun et al. 1998): handwritten digits.

use std::sync::Arc;

use crate::augment::Augment;
use crate::entry::{DatasetEntry, Folder, Location};
use crate::error::DataError;
use crate::format::idx;
use crate::image_set::ImageSet;

const CLASSES: usize = 10;

pub(super) const ENTRY: DatasetEntry = DatasetEntry {
    name: "mnist",
    about: "MNIST, 60,000 images, padded to 3x32x32",
    location: Location::Given,
    takes: &[],
    get: "https://ossci-datasets.s3.amazonaws.com/mnist/",
    open: |folder, _| Ok(Arc::new(read(folder)?)),
};

pub(crate) fn read(folder: &Folder) -> Result<ImageSet, DataError> {
    let images = |part| idx::in_folder(folder, part, CLASSES);
    let images = [images("train")?, images("t10k")?];
    let augment = Augment { crop_padding: 2, flip: false };
    let digits = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    Ok(ImageSet::spread(images, [3, 32], CLASSES, augment)?.with_label_names(digits))
}
