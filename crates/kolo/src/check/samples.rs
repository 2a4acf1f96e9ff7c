//! The data, as a rank reads it.

use std::time::{Duration, Instant};

use kolo_check::probes::{DataFacts, SamplesRead};
use kolo_data::{DataError, Part, read_samples};
use kolo_recipe::Recipe;

/// Longest time for reading samples.
const LONGEST: Duration = Duration::from_secs(10);

/// Opens the data, and reads its samples with so many threads.
pub(super) fn read(recipe: &Recipe, threads: usize) -> Result<DataFacts, DataError> {
    let images = recipe.open_data()?;
    let (read, of) = read_samples(&*images, threads, Instant::now() + LONGEST)?;
    let [train, test] = [Part::Train, Part::Test].map(|part| images.fingerprint(part));
    Ok(DataFacts {
        samples: train.samples,
        test_samples: test.samples,
        fingerprint: Some(format!("{train}, {test}")),
        read: SamplesRead { read, of },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_cannot_be_read_says_why() {
        let of = |data: &str| read(&Recipe { data: data.into(), ..Recipe::default() }, 2);
        assert!(of("cifar10:nowhere").unwrap_err().to_string().contains("nowhere"));
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        for number in 0..40 {
            let image: &[u8] = if number == 23 { b"no image" } else { b"P5 2 1 255\n\x10\x20" };
            std::fs::write(folder.path().join(format!("a/{number}.pgm")), image).unwrap();
        }
        let told = of(&format!("folder:{}", folder.path().display())).unwrap_err().to_string();
        assert!(told.contains("a/23.pgm is not an image of a known format"), "{told}");
        let facts = of("fashion-mnist-small").unwrap();
        assert_eq!((facts.samples, facts.test_samples, facts.read.read), (10_000, 2_000, facts.read.of));
    }
}
