//! The data, as a rank reads it.

use kolo_check::probes::DataFacts;
use kolo_data::{self as data, Part};

/// Reads all of the data.
pub(super) fn read(spec: &str) -> Result<DataFacts, String> {
    let images = data::open(spec).map_err(|error| error.to_string())?;
    let [train, test] = [Part::Train, Part::Test].map(|part| images.fingerprint(part));
    Ok(DataFacts {
        samples: train.samples,
        test_samples: test.samples,
        fingerprint: Some(format!("{train}, {test}")),
    })
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
