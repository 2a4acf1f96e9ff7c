//! Batch normalization over few samples.

use kolo_report::units::plural;

use super::{Check, Found, Severity};
use crate::facts::Facts;
use crate::settings::Normalization;

pub(super) const CHECK: Check =
    Check { name: "batch normalization", about: "shards with too few samples to normalize over", find };

/// Number of samples below which the error rises steeply.
const FEW: usize = 8;
/// Number of samples from which the size does not matter.
const ENOUGH: usize = 16;

fn find(facts: &Facts) -> Option<Found> {
    let (settings, samples) = (&facts.settings, facts.settings.batch.shard);
    if settings.normalization != Normalization::PerShard || samples >= ENOUGH {
        return None;
    }
    let severity = if samples < FEW { Severity::Warning } else { Severity::Notice };
    Some((
        severity,
        format!("{} normalizes over the {} of a shard", settings.model, plural(samples, "sample")),
        "Mean and variance of few samples are noise, in training and in the running statistics. ResNet-50 on ImageNet had 23.6 % errors with \
         32 samples, 23.7 with 16, 24.8 with 8, 27.3 with 4 and 34.7 with 2 (Wu & He 2018, table 2)."
            .into(),
        match settings.shards() {
            1 => "Give a larger --batch-size.".into(),
            shards => format!(
                "Give --batch-norm sync, which normalizes over all {} samples of a step, or fewer and larger shards.",
                shards * samples
            ),
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn it_is_the_shard_that_counts() {
        let mut facts = example::one_host(4);
        let severity = |facts: &mut Facts, samples| {
            facts.settings.batch.shard = samples;
            find(facts).map(|(severity, ..)| severity)
        };
        assert_eq!(severity(&mut facts, 16), None);
        assert_eq!(severity(&mut facts, 8), Some(Severity::Notice));
        assert_eq!(severity(&mut facts, 7), Some(Severity::Warning));
        assert!(find(&facts).unwrap().3.contains("all 28 samples"));
        facts.settings.normalization = Normalization::GlobalBatch;
        assert_eq!(find(&facts), None);
        facts.settings.normalization = Normalization::None;
        assert_eq!(find(&facts), None);
    }
}
