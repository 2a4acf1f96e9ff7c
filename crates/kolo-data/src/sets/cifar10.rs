//! [CIFAR-10](https://www.cs.toronto.edu/~kriz/cifar.html) (Krizhevsky 2009), binary version.

use std::sync::Arc;

use crate::augment::Augment;
use crate::entry::{DatasetEntry, Folder, Location};
use crate::error::DataError;
use crate::format::cifar::{self, Record};
use crate::image_set::ImageSet;

const CLASSES: usize = 10;
/// Names by label, as in the archive's `batches.meta.txt`.
const LABEL_NAMES: [&str; CLASSES] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

const RECORD: Record = Record { label_bytes: 1, count: 10_000 };

pub(super) const ENTRY: DatasetEntry = DatasetEntry {
    name: "cifar10",
    about: "CIFAR-10, binary version, 50,000 images, 3x32x32",
    location: Location::Given,
    takes: &[],
    get: "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    open: |folder, _| Ok(Arc::new(read(folder)?)),
};

pub(crate) fn read(folder: &Folder) -> Result<ImageSet, DataError> {
    let train: Vec<String> = (1..=5).map(|number| format!("data_batch_{number}.bin")).collect();
    let images = |names: &[String]| cifar::in_folder(folder, names, RECORD, CLASSES);
    let (train, test) = (images(&train)?, images(&["test_batch.bin".into()])?);
    let augment = Augment { crop_padding: 4, flip: true };
    let set = ImageSet::new(train, test, CLASSES, augment)?;
    Ok(set.with_label_names(LABEL_NAMES))
}
