//! The data, as a rank reads it.

use kolo_check::probes::DataFacts;
use kolo_data::{self as data, ImageDataSet, Part};
use sha2::{Digest, Sha256};

/// Samples that are hashed at once.
const PIECE: usize = 256;

/// Reads all of it.
///
/// # Errors
///
/// Why it cannot be read.
pub(super) fn read(spec: &str) -> Result<DataFacts, String> {
    let images = data::open(spec).map_err(|error| error.to_string())?;
    Ok(DataFacts {
        samples: images.samples(Part::Train),
        test_samples: images.samples(Part::Test),
        fingerprint: Some(fingerprint(&*images)),
    })
}

/// A hash of what models see: every sample, normalised, with its label.
fn fingerprint(images: &dyn ImageDataSet) -> String {
    let mut hash = Sha256::new();
    for part in [Part::Train, Part::Test] {
        let all: Vec<usize> = (0..images.samples(part)).collect();
        for indices in all.chunks(PIECE) {
            let batch = images.batch(part, indices, None);
            let bytes = |words: &mut dyn Iterator<Item = [u8; 4]>| words.flatten().collect::<Vec<u8>>();
            hash.update(bytes(&mut batch.images.iter().map(|value| value.to_le_bytes())));
            hash.update(bytes(&mut batch.labels.iter().map(|label| label.to_le_bytes())));
        }
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_cannot_be_read_says_why() {
        assert!(read("cifar10:nowhere").unwrap_err().contains("nowhere"));
        let facts = read("fashion-mnist-small").unwrap();
        assert_eq!((facts.samples, facts.test_samples), (10_000, 2_000));
    }
}
