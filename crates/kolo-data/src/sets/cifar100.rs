//! [CIFAR-100](https://www.cs.toronto.edu/~kriz/cifar.html) (Krizhevsky 2009), binary version, by its fine
//! classes.

use std::sync::Arc;

use crate::augment::Augment;
use crate::entry::{DatasetEntry, Folder, Location};
use crate::error::DataError;
use crate::format::cifar::{self, Record};
use crate::image_set::ImageSet;

const CLASSES: usize = 100;

/// Entry of the table.
pub(super) const ENTRY: DatasetEntry = DatasetEntry {
    name: "cifar100",
    about: "CIFAR-100, binary version, 50,000 images, 3x32x32",
    location: Location::Given,
    get: "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    open: |folder| Ok(Arc::new(read(folder)?)),
};

fn read(folder: &Folder) -> Result<ImageSet, DataError> {
    let images = |name: &str, count| {
        cifar::in_folder(folder, &[name.to_owned()], Record { label_bytes: 2, count }, CLASSES)
    };
    let (train, test) = (images("train.bin", 50_000)?, images("test.bin", 10_000)?);
    Ok(ImageSet::new(train, test, CLASSES, Augment { crop_padding: 4, flip: true }))
}
