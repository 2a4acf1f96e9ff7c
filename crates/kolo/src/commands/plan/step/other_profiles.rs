//! Profiles of the same model with another batch, precision or reduction, for comparison with the first.

use kolo::Failure;
use kolo_ddp::reduction;
use kolo_plan::step::{Keeps, StepProfile, WireCost};

use crate::bench::profile::WorkerProfile;

/// Profile of a worker's step with other options.
pub(super) struct OtherProfile {
    /// Differing options, as `kolo train` accepts them.
    pub(super) options: String,
    pub(super) profile: StepProfile,
    /// Reduction with which the profile was measured.
    pub(super) reduction: WireCost,
    /// Samples of a step, relative to the first profile's.
    pub(super) samples: f64,
    pub(super) keeps: Keeps,
}

/// Returns the cost of the reduction with which a profile was measured. Returns that of the sum for an
/// unknown one, because the profile has the bytes.
pub(super) fn measured_with(text: &str) -> WireCost {
    reduction::parse(text).ok().and_then(|reducer| reducer.wire_cost()).unwrap_or(WireCost::SUM)
}

/// Compares all further profiles with the first.
/// Refuses a profile of another model, and one with the same options as the first.
pub(super) fn others(profiles: Vec<WorkerProfile>) -> Result<Vec<OtherProfile>, Failure> {
    let mut profiles = profiles.into_iter();
    let Some(first) = profiles.next() else { return Ok(Vec::new()) };
    profiles.map(|other| beside(&first, other)).collect()
}

fn beside(first: &WorkerProfile, other: WorkerProfile) -> Result<OtherProfile, Failure> {
    if other.model != first.model {
        let models = format!("{} and {}", first.model, other.model);
        return Err(Failure::input(format!(
            "--advise compares profiles of one model, and these are of {models}; give those of one"
        )));
    }
    let options: Vec<String> = [
        (other.batch_size != first.batch_size).then(|| format!("--batch-size {}", other.batch_size)),
        (other.precision != first.precision).then(|| format!("--precision {}", other.precision)),
        (other.reduction != first.reduction).then(|| format!("--reduction {}", other.reduction)),
    ]
    .into_iter()
    .flatten()
    .collect();
    if options.is_empty() {
        return Err(Failure::input(
            "two profiles have the same batch, precision and reduction; give one of them",
        ));
    }
    let is_exact = other.precision == first.precision && other.reduction == first.reduction;
    Ok(OtherProfile {
        options: options.join(" "),
        reduction: measured_with(&other.reduction),
        samples: other.batch_size as f64 / first.batch_size as f64,
        keeps: if is_exact { Keeps::Gradients } else { Keeps::Nothing },
        profile: other.profile,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(batch_size: usize, precision: &str, reduction: &str) -> WorkerProfile {
        WorkerProfile {
            model: "small".into(),
            batch_size,
            precision: precision.into(),
            reduction: reduction.into(),
            cores: 2,
            full_slowdown: 1.0,
            spread: 0.0,
            profile: StepProfile::even(1.0, 2.0, 0.5, 4e6, 1e6),
        }
    }

    #[test]
    fn what_is_other_is_told_as_options() {
        let profiles = vec![
            profile(32, "f32", "sum"),
            profile(64, "f32", "sum"),
            profile(16, "bf16", "sum"),
            profile(32, "f32", "ef-sign"),
        ];
        let told = others(profiles).unwrap_or_default();
        let options: Vec<&str> = told.iter().map(|other| other.options.as_str()).collect();
        assert_eq!(options, ["--batch-size 64", "--batch-size 16 --precision bf16", "--reduction ef-sign"]);
        let keeps: Vec<Keeps> = told.iter().map(|other| other.keeps).collect();
        assert_eq!(keeps, [Keeps::Gradients, Keeps::Nothing, Keeps::Nothing]);
        assert_eq!((told[0].samples, told[1].samples), (2.0, 0.5));
        assert_eq!([0, 2].map(|other| told[other].reduction.is_exact), [true, false]);
    }

    #[test]
    fn profiles_that_cannot_be_compared_are_refused() {
        let mut mlp = profile(64, "f32", "sum");
        mlp.model = "mlp".into();
        for (other, words) in [(mlp, "of small and mlp"), (profile(32, "f32", "sum"), "the same batch")] {
            let error = others(vec![profile(32, "f32", "sum"), other]).err().map(|error| error.to_string());
            assert!(error.as_ref().is_some_and(|error| error.contains(words)), "{error:?}");
        }
    }
}
