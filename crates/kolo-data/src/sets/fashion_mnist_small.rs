//! A part of Fashion-MNIST that is embedded in the program: see `assets/fashion-mnist-small/README.md`.

use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

use crate::augment::Augment;
use crate::entry::{DatasetEntry, Location};
use crate::error::DataError;
use crate::format::idx;
use crate::format::source::Source;
use crate::image_set::ImageSet;
use crate::sets::fashion_mnist::LABEL_NAMES;

const CLASSES: usize = 10;

macro_rules! asset {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../../assets/fashion-mnist-small/", $name)).as_slice())
    };
}

/// Training images, training labels, test images, test labels: name and compressed bytes.
const FILES: [(&str, &[u8]); 4] = [
    asset!("train-images-idx3-ubyte.gz"),
    asset!("train-labels-idx1-ubyte.gz"),
    asset!("t10k-images-idx3-ubyte.gz"),
    asset!("t10k-labels-idx1-ubyte.gz"),
];

pub(super) const ENTRY: DatasetEntry = DatasetEntry {
    name: "fashion-mnist-small",
    about: "10,000 of Fashion-MNIST's images, 1x28x28, part of the program",
    location: Location::Embedded,
    takes: &[],
    get: "",
    open: |_, _| Ok(Arc::new(read()?)),
};

pub(crate) fn read() -> Result<ImageSet, DataError> {
    let source = |(name, bytes): (&str, &'static [u8])| Source::new(Path::new(name), Cursor::new(bytes));
    let images =
        |[images, labels]: [(&str, &'static [u8]); 2]| idx::read(source(images)?, source(labels)?, CLASSES);
    let (train, test) = (images([FILES[0], FILES[1]])?, images([FILES[2], FILES[3]])?);
    let augment = Augment { crop_padding: 0, flip: true };
    Ok(ImageSet::new(train, test, CLASSES, augment)?.with_label_names(LABEL_NAMES))
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::part::Part;

    #[test]
    fn the_files_have_the_checksums_written_beside_them() {
        let sums = include_str!("../../assets/fashion-mnist-small/SHA256SUMS");
        assert_eq!(sums.lines().count(), FILES.len());
        for (name, bytes) in FILES {
            let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(sums.lines().any(|line| line == format!("{hex}  {name}")), "{name}: {hex}");
        }
    }

    #[test]
    fn the_classes_are_balanced() {
        let dataset = read().unwrap();
        for (part, count) in [(Part::Train, 10_000), (Part::Test, 2_000)] {
            let images = dataset.images(part);
            assert_eq!((images.len(), images.channels, images.height, images.width), (count, 1, 28, 28));
            assert_eq!(images.pixels.len(), count * 28 * 28);
            let mut classes = [0; 10];
            images.labels.iter().for_each(|&label| classes[label as usize] += 1);
            let (least, most) = (count * 9 / 100, count * 11 / 100);
            assert!(classes.iter().all(|n| (least..=most).contains(n)), "{classes:?}");
        }
        // The complete training set has 0.2860 and 0.3530.
        let (mean, std) = dataset.images(Part::Train).mean_and_std();
        assert!((mean[0] - 0.286).abs() < 0.003, "{mean:?}");
        assert!((std[0] - 0.353).abs() < 0.003, "{std:?}");
    }
}
