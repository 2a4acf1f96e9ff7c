//! Checks of single settings. Each names the option as the command line spells it.

use crate::error::Error;

/// Refuses a count of 0.
pub(crate) fn at_least_1(option: &'static str, count: impl Into<Option<u64>>) -> Result<(), Error> {
    match count.into() {
        Some(0) => Err(Error::setting(option, 0, "it must be at least 1")),
        _ => Ok(()),
    }
}

/// Refuses 0, negative numbers, infinity and what is no number, also where it is so in single precision.
pub(crate) fn greater_than_0(option: &'static str, value: impl Into<Option<f64>>) -> Result<(), Error> {
    match value.into() {
        Some(value) if value.is_finite() && (value as f32).is_infinite() => {
            Err(Error::setting(option, value, "it must be at most 3e38, as single precision holds it"))
        }
        Some(value) if !(value > 0.0 && value.is_finite()) => {
            Err(Error::setting(option, value, "it must be greater than 0"))
        }
        _ => Ok(()),
    }
}

/// Refuses what is no share of a whole.
pub(crate) fn below_1(option: &'static str, value: f64) -> Result<(), Error> {
    match (0.0..1.0).contains(&value) {
        true => Ok(()),
        false => Err(Error::setting(option, value, "it must be at least 0 and below 1")),
    }
}

/// Refuses more shards than there are samples to train on: some would be empty in every step, and a step goes
/// through all of them.
pub(crate) fn at_most_a_sample(shards: usize, samples: usize) -> Result<(), Error> {
    let problem =
        || format!("the data has {samples} samples to train on, and a shard needs one; give at most as many");
    if shards > samples && samples > 0 { Err(Error::setting("--shards", shards, problem())) } else { Ok(()) }
}

/// Refuses a bucket size that is none.
///
/// # Errors
///
/// `mib` is not greater than 0.
pub fn check_bucket_cap(mib: Option<f64>) -> Result<(), Error> {
    greater_than_0("--bucket-cap-mb", mib)
}
