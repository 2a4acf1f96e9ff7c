//! Compares changes of a job, single or combined, by the samples per second that they bring.

use serde::Serialize;

use crate::step::choices::{Choices, Sync};
use crate::step::load_table::LoadTable;
use crate::step::predict::{Prediction, predict};
use crate::step::profile::StepProfile;

/// Minimum relative gain that makes a change worthwhile.
pub const WORTH: f64 = 0.05;

/// Guarantees that a change preserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keeps {
    /// Weights end with the same bits.
    Bits,
    /// Every gradient is exact, but the global batch differs.
    Gradients,
    /// Neither: accuracy has to be tested.
    Nothing,
}

/// Job that differs from another in some options.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Options, as on the command line.
    pub options: String,
    /// Choices of the changed job.
    pub choices: Choices,
    /// One worker's step with these choices.
    pub profile: StepProfile,
    /// Samples per shard, relative to the original job.
    pub samples: f64,
    /// Guarantees of the original job that the variant preserves.
    pub keeps: Keeps,
}

impl Variant {
    /// Returns true if the variant is possible: a lossy reduction requires synchronization in every step.
    pub fn is_possible(&self) -> bool {
        !matches!(self.choices.sync, Sync::Rounds(_)) || self.choices.reduction.is_exact
    }
}

/// Predicted effect of a variant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// Options, as on the command line.
    pub options: String,
    /// Predicted step.
    #[serde(flatten)]
    pub prediction: Prediction,
    /// Samples per second, relative to the original job.
    pub gain: f64,
    /// Guarantees that the variant preserves.
    pub keeps: Keeps,
    /// True if the gain makes the change worthwhile.
    pub is_worth_it: bool,
}

/// Compares a variant with a job whose step is predicted as `now`, on the same number of workers.
pub fn advise(now: &Prediction, variant: &Variant, table: &LoadTable) -> Advice {
    let prediction = predict(&variant.profile, table, &variant.choices);
    let speed = |of: &Prediction| (of.workers * of.shards) as f64 / of.seconds;
    let gain = variant.samples * speed(&prediction) / speed(now);
    Advice {
        options: variant.options.clone(),
        prediction,
        gain,
        keeps: variant.keeps,
        is_worth_it: gain > 1.0 + WORTH,
    }
}

/// Returns the worthwhile variant with the largest gain among those that preserve at least `keeps`, if any.
pub fn best(advice: &[Advice], keeps: Keeps) -> Option<&Advice> {
    let allowed = advice.iter().filter(|advice| advice.keeps <= keeps && advice.is_worth_it);
    largest_gain(allowed)
}

/// Returns the advice with the largest gain, of equal ones the first, which changes the fewest options.
pub fn largest_gain<'a>(advice: impl IntoIterator<Item = &'a Advice>) -> Option<&'a Advice> {
    advice.into_iter().reduce(|best, other| if other.gain > best.gain { other } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClusterFile;
    use crate::step::{Caps, Travel, WireCost};

    const BF16: WireCost = WireCost::lossy(Travel::ToOwners, 2.0);

    fn variant(options: &str, keeps: Keeps, choices: Choices) -> Variant {
        let profile = StepProfile::even(0.012, 0.018, 0.006, 44.7e6, 1e6);
        Variant { options: options.into(), choices, profile, samples: 1.0, keeps }
    }

    #[test]
    fn a_slow_link_wants_fewer_bytes_and_a_fast_one_nothing() {
        let advice = |link: &str| {
            let table = LoadTable::new(ClusterFile::of_link(link).of(2).unwrap());
            let job =
                variant("", Keeps::Bits, Choices { caps: Some(Caps::of_mib(4.0)), ..Choices::default() });
            let now = predict(&job.profile, &table, &job.choices);
            let mut half = variant("bf16", Keeps::Nothing, Choices { reduction: BF16, ..job.choices });
            half.profile = job.profile.sending(2.0);
            let accumulate = Choices { accumulate: 4, ..job.choices };
            let four = variant("four", Keeps::Gradients, accumulate);
            [half, four].map(|variant| advise(&now, &variant, &table))
        };
        let slow = advice("100mbe");
        assert!((slow[0].gain - 2.0).abs() < 0.1 && slow[1].gain > 3.5, "{slow:?}");
        assert_eq!(best(&slow, Keeps::Nothing).map(|advice| advice.options.as_str()), Some("four"));
        assert_eq!(best(&slow, Keeps::Bits), None);
        let fast = advice("ndr");
        // Accumulation saves updates in any case.
        assert!(!fast[0].is_worth_it && fast[1].gain < 1.2, "{fast:?}");
    }

    #[test]
    fn the_first_of_equal_gains_is_best() {
        let table = LoadTable::new(ClusterFile::of_link("100mbe").of(2).unwrap());
        let job = variant("", Keeps::Bits, Choices::default());
        let now = predict(&job.profile, &table, &job.choices);
        let four = Choices { accumulate: 4, ..job.choices };
        let advice = ["first", "second"]
            .map(|options| advise(&now, &variant(options, Keeps::Gradients, four), &table));
        assert_eq!(advice[0].gain, advice[1].gain);
        assert_eq!(best(&advice, Keeps::Nothing).map(|advice| advice.options.as_str()), Some("first"));
    }

    #[test]
    fn a_larger_batch_has_more_samples() {
        let table = LoadTable::new(ClusterFile::of_link("ndr").of(2).unwrap());
        let job = variant("", Keeps::Bits, Choices::default());
        let now = predict(&job.profile, &table, &job.choices);
        let mut double = variant("double", Keeps::Gradients, job.choices);
        (double.profile, double.samples) = (job.profile.slowed(1.5), 2.0);
        let gain = advise(&now, &double, &table).gain;
        assert!((gain - 2.0 / 1.5).abs() < 0.01, "{gain}");
    }

    #[test]
    fn islands_exclude_lossy_reductions() {
        let rare = Choices { sync: Sync::Rounds(8), ..Choices::default() };
        assert!(variant("", Keeps::Nothing, rare).is_possible());
        let both = Choices { reduction: BF16, ..rare };
        assert!(!variant("", Keeps::Nothing, both).is_possible());
    }
}
