//! The type in which a run computes, by its name in the recipe.

use kolo_burn::Precision;
use kolo_recipe::{PRECISIONS, PrecisionConfig};

use kolo_train::Error;

/// Returns the type in which a run computes.
///
/// # Errors
///
/// There is none of that name; lists the known ones.
///
/// # Examples
///
/// ```
/// use kolo_burn_train::{PrecisionConfig, precision};
///
/// let config = PrecisionConfig { compute: "half".into(), ..PrecisionConfig::default() };
/// assert!(precision(&config).is_err(), "there is no such type");
/// assert!(precision(&PrecisionConfig::default()).is_ok());
/// ```
pub fn precision(config: &PrecisionConfig) -> Result<Precision, Error> {
    let found = Precision::ALL.iter().find(|(name, _)| *name == config.compute);
    let unknown = || kolo_recipe::Error::unknown("--precision", &config.compute, PRECISIONS).into();
    found.map(|(_, precision)| *precision).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recipe_names_the_types_of_the_layers() {
        assert_eq!(Precision::ALL.map(|(name, _)| name), PRECISIONS);
    }
}
