//! The data, as a rank reads it.

use kolo_check::probes::DataFacts;
use kolo_data::Part;
use kolo_recipe::Recipe;

/// Reads all of the data.
pub(super) fn read(recipe: &Recipe) -> Result<DataFacts, String> {
    let images = recipe.open_data().map_err(|error| error.to_string())?;
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
        let facts = read(&Recipe::default()).unwrap();
        assert_eq!((facts.samples, facts.test_samples), (10_000, 2_000));
    }
}
