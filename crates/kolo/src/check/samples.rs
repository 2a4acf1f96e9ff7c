//! The data, as a rank reads it.

use kolo_check::probes::DataFacts;
use kolo_data::Part;
use kolo_recipe::Recipe;

/// Most samples of a part that are read one by one.
const TRIED: usize = 16;

/// Opens the data, and reads some samples of each part, from its first to its last.
pub(super) fn read(recipe: &Recipe) -> Result<DataFacts, String> {
    let images = recipe.open_data().map_err(|error| error.to_string())?;
    for part in Part::ALL {
        let samples = images.samples(part);
        let tried = samples.min(TRIED);
        for number in 0..tried {
            let index = number * (samples - 1) / (tried - 1).max(1);
            images.batch(part, &[index], None).map_err(|error| error.to_string())?;
        }
    }
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
        assert!(
            read(&Recipe { data: "cifar10:nowhere".into(), ..Recipe::default() })
                .unwrap_err()
                .contains("nowhere")
        );
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        for number in 0..3 {
            std::fs::write(folder.path().join(format!("a/{number}.png")), "no image").unwrap();
        }
        let data = format!("folder:{}", folder.path().display());
        let told = read(&Recipe { data, ..Recipe::default() }).unwrap_err();
        assert!(told.contains("a/0.png is not an image of a known format"), "{told}");
        let facts = read(&Recipe { data: "fashion-mnist-small".into(), ..Recipe::default() }).unwrap();
        assert_eq!((facts.samples, facts.test_samples), (10_000, 2_000));
    }
}
