//! Checks of single settings. Each error names the option as the command line spells it.

use kolo_ddp::table::Value;
use kolo_run_folder::units::counted;

use crate::error::Error;

/// Largest count in a setting: epochs, samples, shards, workers. Products of two such counts, such as the
/// steps of a run, fit into 64 bits.
const MOST: u64 = u32::MAX as u64;

/// Largest number of steps in a setting: up to there `f64`, in which learning rates are computed, has every
/// whole number.
const MOST_STEPS: u64 = 1 << 53;

/// Refuses a count that is 0 or too large to compute with.
pub(crate) fn count(option: &'static str, count: impl Into<Option<usize>>) -> Result<(), Error> {
    let count = count.into().map(|count| count as u64);
    least_1(option, count)?;
    at_most(option, count, MOST)
}

/// Refuses 0 steps, and more than can be computed with.
pub(crate) fn steps(option: &'static str, steps: impl Into<Option<u64>>) -> Result<(), Error> {
    let steps = steps.into();
    least_1(option, steps)?;
    at_most(option, steps, MOST_STEPS)
}

/// Refuses more steps than can be computed with; 0 is permitted.
pub(crate) fn steps_or_0(option: &'static str, steps: u64) -> Result<(), Error> {
    at_most(option, Some(steps), MOST_STEPS)
}

fn least_1(option: &'static str, count: Option<u64>) -> Result<(), Error> {
    match count {
        Some(0) => Err(Error::setting(option, 0, "it must be at least 1")),
        _ => Ok(()),
    }
}

fn at_most(option: &'static str, count: Option<u64>, most: u64) -> Result<(), Error> {
    match count {
        Some(count) if count > most => {
            Err(Error::setting(option, count, format!("it must be at most {most}")))
        }
        _ => Ok(()),
    }
}

/// Refuses an invalid learning rate, or one that becomes 0 in the single precision of optimizers.
pub(crate) fn rate(option: &'static str, value: f64) -> Result<(), Error> {
    greater_than_0(option, value)?;
    match value as f32 > 0.0 {
        true => Ok(()),
        false => {
            let problem = "it is 0 in single precision; it must be greater than 0 there, as 1e-45 is";
            Err(Error::setting(option, Value::Number(value), problem))
        }
    }
}

/// Refuses 0, negative numbers, infinity and NaN, and numbers that are infinite in single precision.
pub(crate) fn greater_than_0(option: &'static str, value: impl Into<Option<f64>>) -> Result<(), Error> {
    match value.into() {
        Some(value) if value > 0.0 && (value as f32).is_infinite() => {
            let problem = "it must be greater than 0 and at most 3e38, as single precision holds it";
            Err(Error::setting(option, Value::Number(value), problem))
        }
        Some(value) if value.is_nan() || value <= 0.0 => {
            Err(Error::setting(option, Value::Number(value), "it must be greater than 0"))
        }
        _ => Ok(()),
    }
}

/// Refuses a number outside of 0 (included) to 1 (excluded).
pub(crate) fn below_1(option: &'static str, value: f64) -> Result<(), Error> {
    match (0.0..1.0).contains(&value) {
        true => Ok(()),
        false => Err(Error::setting(option, Value::Number(value), "it must be at least 0 and below 1")),
    }
}

/// Refuses more shards than training samples: some shards would be empty in every step, and a step goes
/// through all of them.
pub(crate) fn at_most_a_sample(shards: usize, samples: usize) -> Result<(), Error> {
    let problem = || {
        let samples = counted(samples, "sample");
        format!("the data has {samples} to train on, and a shard needs one; give at most as many")
    };
    if shards > samples && samples > 0 { Err(Error::setting("--shards", shards, problem())) } else { Ok(()) }
}

/// Refuses an invalid bucket size.
///
/// # Errors
///
/// `mib` is not greater than 0.
pub fn check_bucket_cap(mib: Option<f64>) -> Result<(), Error> {
    greater_than_0("--bucket-cap-mb", mib)
}

/// True if all numbers of a TOML value are finite. Others would be lost on their way through JSON.
pub(super) fn is_finite(value: &toml::Value) -> bool {
    match value {
        toml::Value::Float(number) => number.is_finite(),
        toml::Value::Array(values) => values.iter().all(is_finite),
        toml::Value::Table(table) => table.values().all(is_finite),
        _ => true,
    }
}
