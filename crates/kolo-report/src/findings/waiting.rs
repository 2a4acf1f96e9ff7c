//! Waiting for communication that no other finding explains.

use kolo_run_folder::Run;

use super::finding::{Entry, Finding, Found, LEAST_WAITING, Severity, of_share};
use super::{huge_bucket, slow_link, small_buckets, straggler};
use crate::analysis::{BucketCosts, Pace};
use crate::units::{number, percent, seconds};

pub(super) const ENTRY: Entry<Run> = Entry {
    name: "waiting",
    about: "communication that is waited for, for no reason that can be told",
    find,
};

/// Findings that explain the waiting.
const CAUSES: [Entry<Run>; 4] =
    [straggler::ENTRY, slow_link::ENTRY, small_buckets::ENTRY, huge_bucket::ENTRY];

fn find(run: &Run) -> Option<Found> {
    let pace = Pace::of(run)?;
    // A notice is about a part of the run, and explains little of the waiting.
    let explains = |found: Finding| found.severity < Severity::Notice;
    if pace.exposed_share() < LEAST_WAITING
        || CAUSES.iter().any(|cause| cause.find(run).is_some_and(explains))
    {
        return None;
    }
    let buckets = match BucketCosts::of(run) {
        Some(costs) => format!(
            "The reductions of a step take {}, and one of twenty {} times as long.",
            seconds(costs.seconds),
            number(costs.spread)
        ),
        None => "Without buckets.csv it cannot be told from what.".into(),
    };
    Some((
        of_share(pace.exposed_share()),
        format!("Workers wait for communication {} of the time", percent(pace.exposed_share())),
        format!(
            "A step computes for {} and waits for {} more, {} of that with nothing on the wire. {buckets}",
            seconds(pace.compute_a_step()),
            seconds(pace.exposed_a_step()),
            percent(pace.rank_wait / pace.exposed)
        ),
        "Where reductions now and then take many times as long, something disturbs a worker or the \
                 network: look for other programs on the machines, and for more workers than cores. `kolo \
                 bench all-reduce` measures the network alone."
            .into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn waiting_is_reported_if_nothing_else_explains_it() {
        let mut run = example::waiting(example::with_buckets(&[(1e6, 0.01), (2e6, 0.02), (2e6, 0.02)]), 0.03);
        assert_eq!(ENTRY.find(&run), None, "the link explains it");
        run.buckets.iter_mut().for_each(|bucket| bucket.p95 = 10.0 * bucket.p50);
        let finding = ENTRY.find(&run).unwrap();
        assert!(
            finding.what.ends_with("50.8 % of the time") && finding.why.contains("10 times as long"),
            "{finding:?}"
        );
        run.buckets.clear();
        assert!(ENTRY.find(&run).unwrap().why.contains("Without buckets.csv"));
        assert_eq!(ENTRY.find(&example::run(200)), None);
    }
}
