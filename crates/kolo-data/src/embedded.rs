//! The data set that is part of the program: see `assets/fashion-mnist-small/README.md`.

use std::io::Cursor;
use std::path::Path;

use crate::error::DataError;
use crate::file::Source;

macro_rules! asset {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../assets/fashion-mnist-small/", $name)).as_slice())
    };
}

/// Training images, training labels, test images, test labels: name and compressed bytes.
const FILES: [(&str, &[u8]); 4] = [
    asset!("train-images-idx3-ubyte.gz"),
    asset!("train-labels-idx1-ubyte.gz"),
    asset!("t10k-images-idx3-ubyte.gz"),
    asset!("t10k-labels-idx1-ubyte.gz"),
];

/// Images and labels, to train on if `train`, else to test on.
pub(crate) fn sources(train: bool) -> Result<[Source; 2], DataError> {
    let [images, labels] = if train { [FILES[0], FILES[1]] } else { [FILES[2], FILES[3]] };
    let source = |(name, bytes): (&str, &'static [u8])| Source::new(Path::new(name), Cursor::new(bytes));
    Ok([source(images)?, source(labels)?])
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::open;

    #[test]
    fn the_files_have_the_checksums_written_beside_them() {
        let sums = include_str!("../assets/fashion-mnist-small/SHA256SUMS");
        assert_eq!(sums.lines().count(), FILES.len());
        for (name, bytes) in FILES {
            let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(sums.lines().any(|line| line == format!("{hex}  {name}")), "{name}: {hex}");
        }
    }

    #[test]
    fn the_classes_are_balanced() {
        let dataset = open("fashion-mnist-small").unwrap();
        for (images, count) in [(&dataset.train, 10_000), (&dataset.test, 2_000)] {
            assert_eq!((images.len(), images.channels, images.height, images.width), (count, 1, 28, 28));
            assert_eq!(images.pixels.len(), count * 28 * 28);
            let mut classes = [0; 10];
            images.labels.iter().for_each(|&label| classes[usize::from(label)] += 1);
            let (least, most) = (count * 9 / 100, count * 11 / 100);
            assert!(classes.iter().all(|n| (least..=most).contains(n)), "{classes:?}");
        }
        // The whole training set's are 0.2860 and 0.3530.
        assert!((dataset.mean[0] - 0.286).abs() < 0.003, "{:?}", dataset.mean);
        assert!((dataset.std[0] - 0.353).abs() < 0.003, "{:?}", dataset.std);
    }
}
