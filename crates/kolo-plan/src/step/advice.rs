//! What a job may change, one thing at a time or several: which change makes samples pass faster.

use serde::Serialize;

use crate::step::choices::{Choices, Sync};
use crate::step::load_table::LoadTable;
use crate::step::predict::{Prediction, predict};
use crate::step::profile::StepProfile;

/// What less than this share is gained by is not worth a change.
pub const WORTH: f64 = 0.05;

/// What a change leaves as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keeps {
    /// Weights end in the same bits.
    Bits,
    /// Every gradient is exact, but the global batch is another one.
    Gradients,
    /// Neither: accuracy has to be tried.
    Nothing,
}

/// A job that is like another one but for some options.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The options, as on the command line.
    pub options: String,
    /// Its choices.
    pub choices: Choices,
    /// One worker's step with them.
    pub profile: StepProfile,
    /// Samples of a shard, by those of the job that it is compared with.
    pub samples: f64,
    /// What it keeps of that job.
    pub keeps: Keeps,
}

impl Variant {
    /// Whether it can be: what is said less of has to be said in every step.
    pub fn is_possible(&self) -> bool {
        !(matches!(self.choices.sync, Sync::Rounds(_)) && self.choices.reduction.is_lossy)
    }
}

/// What a variant would bring.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The options.
    pub options: String,
    /// Its step.
    #[serde(flatten)]
    pub prediction: Prediction,
    /// Samples in a second, by those of the job as it is.
    pub gain: f64,
    /// What it keeps.
    pub keeps: Keeps,
    /// Whether it gains enough to be worth a change.
    pub is_worth_it: bool,
}

/// Compares a variant with a job whose step is predicted as `now`, on the same number of workers.
pub fn advise(now: &Prediction, variant: &Variant, table: &LoadTable) -> Advice {
    let prediction = predict(&variant.profile, table, &variant.choices);
    let speed = |told: &Prediction| (told.workers * told.shards) as f64 / told.seconds;
    let gain = variant.samples * speed(&prediction) / speed(now);
    Advice {
        options: variant.options.clone(),
        prediction,
        gain,
        keeps: variant.keeps,
        is_worth_it: gain > 1.0 + WORTH,
    }
}

/// The one that gains most among those that keep at least so much; nothing where none is worth it.
pub fn best(advice: &[Advice], keeps: Keeps) -> Option<&Advice> {
    let allowed = advice.iter().filter(|told| told.keeps <= keeps && told.is_worth_it);
    allowed.max_by(|a, b| a.gain.total_cmp(&b.gain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClusterFile;
    use crate::step::{Caps, ReductionKind};

    fn variant(options: &str, keeps: Keeps, choices: Choices) -> Variant {
        let profile = StepProfile::even(0.012, 0.018, 0.006, 44.7e6, 1e6);
        Variant { options: options.into(), choices, profile, samples: 1.0, keeps }
    }

    #[test]
    fn a_slow_link_wants_fewer_bytes_and_a_fast_one_nothing() {
        let bf16 = ReductionKind::named("bf16").unwrap();
        let told = |link: &str| {
            let table = LoadTable::new(ClusterFile::of_link(link).of(2).unwrap());
            let job =
                variant("", Keeps::Bits, Choices { caps: Some(Caps::of_mib(4.0)), ..Choices::default() });
            let now = predict(&job.profile, &table, &job.choices);
            let mut half = variant("bf16", Keeps::Nothing, Choices { reduction: bf16, ..job.choices });
            half.profile = bf16.applied(&job.profile, &|_| 0.0).unwrap();
            let accumulate = Choices { accumulate: 4, ..job.choices };
            let four = variant("four", Keeps::Gradients, accumulate);
            [half, four].map(|variant| advise(&now, &variant, &table))
        };
        let slow = told("100mbe");
        assert!((slow[0].gain - 2.0).abs() < 0.1 && slow[1].gain > 3.5, "{slow:?}");
        assert_eq!(best(&slow, Keeps::Nothing).map(|told| told.options.as_str()), Some("four"));
        assert_eq!(best(&slow, Keeps::Bits), None);
        let fast = told("ndr");
        // Fewer updates are gained in any case.
        assert!(!fast[0].is_worth_it && fast[1].gain < 1.2, "{fast:?}");
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
    fn islands_say_all_of_their_gradient() {
        let rare = Choices { sync: Sync::Rounds(8), ..Choices::default() };
        assert!(variant("", Keeps::Nothing, rare).is_possible());
        let both = Choices { reduction: ReductionKind::named("bf16").unwrap(), ..rare };
        assert!(!variant("", Keeps::Nothing, both).is_possible());
    }
}
