//! The data, as a rank reads it.

use std::path::Path;
use std::time::{Duration, Instant};

use kolo_check::probes::{DataFacts, SamplesRead};
use kolo_data::{Part, read_samples};
use kolo_recipe::{Error, Recipe};

/// Opens the data, and reads its samples with so many threads, for at most ten seconds.
pub(super) fn read(recipe: &Recipe, run: Option<&Path>, threads: usize) -> Result<DataFacts, Error> {
    let images = recipe.open_data_of(run)?;
    let (read, of) = read_samples(&*images, threads, Instant::now() + Duration::from_secs(10))?;
    let [train, test] = [Part::Train, Part::Test].map(|part| images.fingerprint(part));
    Ok(DataFacts {
        samples: train.samples,
        test_samples: test.samples,
        fingerprint: Some(format!("{train}, {test}")),
        read: SamplesRead { read, of },
        warnings: images.warnings(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_cannot_be_read_says_why() {
        let of = |data: &str| read(&Recipe { data: data.into(), ..Recipe::default() }, None, 2);
        assert!(of("cifar10:nowhere").unwrap_err().to_string().contains("nowhere"));
        let facts = of("fashion-mnist-small").unwrap();
        assert_eq!((facts.samples, facts.test_samples, facts.read.read), (10_000, 2_000, facts.read.of));
    }
}
