//! The short last batch of an epoch.

use kolo_report::units::{count, plural};

use super::{Check, Found, Severity};
use crate::facts::Facts;
use crate::settings::Normalization;

pub(super) const CHECK: Check = Check {
    name: "last batch",
    about: "a last step of the epoch that leaves shards without samples, or with too few to normalize",
    find,
};

/// Number of samples below which mean and variance are noise.
const FEW: usize = 4;

fn find(facts: &Facts) -> Option<Found> {
    let (settings, work) = (&facts.settings, facts.settings.work?);
    let (shards, batch) = (settings.shards(), settings.batch);
    let last = work.last_batch(batch.global);
    let empty = shards.saturating_sub(last);
    let least = (last / shards).max(1);
    let normalizes = settings.normalization == Normalization::PerShard;
    // The check of batch normalization covers shards that are always as small.
    let thin = normalizes && least < FEW && batch.shard >= FEW;
    if last == batch.global || (empty == 0 && !thin) {
        return None;
    }
    let severity = if thin { Severity::Warning } else { Severity::Notice };
    let (mut what, mut why) = (
        format!("the last step of an epoch has {} for {}", plural(last, "sample"), plural(shards, "shard")),
        format!(
            "{} for training are no multiple of the global batch of {}.",
            plural(work.samples, "sample"),
            count(batch.global)
        ),
    );
    if empty > 0 {
        let have = if empty == 1 { "has" } else { "have" };
        what += &format!(": {} {have} none", count(empty));
        why += " Workers without samples wait in that step.";
    }
    if thin {
        why += &format!(
            " Batch normalization goes by mean and variance of {least} sample{} there, and the running statistics with which the model is \
             tested follow them.",
            if least == 1 { "" } else { "s" }
        );
    }
    let mut advice = "Take a global batch (--shards × --batch-size) that leaves more".to_owned();
    if normalizes {
        advice += ", or --batch-norm sync, which normalizes over the global batch";
    }
    Some((severity, what, why, advice + "."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn a_short_last_batch_is_reported_where_it_does_harm() {
        let mut facts = example::one_host(4);
        // 10,000 samples are 78 steps of 128 samples, and one of 16.
        assert_eq!(find(&facts), None);
        example::work(&mut facts).samples = 9_986;
        let (severity, what, why, _) = find(&facts).unwrap();
        assert_eq!(
            (severity, what.as_str()),
            (Severity::Warning, "the last step of an epoch has 2 samples for 4 shards: 2 have none")
        );
        assert!(why.contains("variance of 1 sample there"), "{why}");
        assert!(find(&facts).unwrap().3.contains("--batch-norm sync"));
        for other in [Normalization::GlobalBatch, Normalization::None] {
            facts.settings.normalization = other;
            let (severity, .., advice) = find(&facts).unwrap();
            assert_eq!(severity, Severity::Notice);
            assert!(!advice.contains("--batch-norm"), "{advice}");
        }
        example::work(&mut facts).samples = 9_984;
        assert_eq!(find(&facts), None);
    }
}
