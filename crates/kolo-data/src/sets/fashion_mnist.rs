//! [Fashion-MNIST](https://github.com/zalandoresearch/fashion-mnist) (Xiao et al. 2017), complete.

use std::sync::Arc;

use crate::augment::Augment;
use crate::entry::{DatasetEntry, Folder, Location};
use crate::error::DataError;
use crate::format::idx;
use crate::image_set::ImageSet;

const CLASSES: usize = 10;

pub(super) const LABEL_NAMES: [&str; CLASSES] = [
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
];

pub(super) const ENTRY: DatasetEntry = DatasetEntry {
    name: "fashion-mnist",
    about: "Fashion-MNIST whole, 60,000 images, padded to 3x32x32",
    location: Location::Usually("/usr/share/datasets/fashion-mnist"),
    takes: &[],
    get: "`apt-get install dataset-fashion-mnist` (Debian, Ubuntu)",
    open: |folder, _| Ok(Arc::new(read(folder)?)),
};

fn read(folder: &Folder) -> Result<ImageSet, DataError> {
    let images = |part| idx::in_folder(folder, part, CLASSES);
    let images = [images("train")?, images("t10k")?];
    let augment = Augment { crop_padding: 4, flip: true };
    Ok(ImageSet::spread(images, [3, 32], CLASSES, augment)?.with_label_names(LABEL_NAMES))
}
