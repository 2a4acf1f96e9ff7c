//! Nodes whose messages take long.

use kolo_report::units::{percent, seconds};

use super::{Check, Found, Severity};
use crate::facts::Facts;
use crate::settings::Exchange;

pub(super) const CHECK: Check =
    Check { name: "latency", about: "messages that take long beside what a step computes", find };

/// Share of a step's computing that its messages may take.
const MOST_PART: f64 = 0.1;

/// Minimum delay that matters, in seconds per step.
const LEAST: f64 = 1e-3;

fn find(facts: &Facts) -> Option<Found> {
    let farthest = facts.links.iter().max_by(|a, b| a.latency.total_cmp(&b.latency))?;
    let step = facts.step_seconds().filter(|_| facts.settings.exchange == Exchange::WithinStep)?;
    // The minimum number of rounds in which all nodes can depend on all: a tree, up and down.
    let rounds = 2.0 * (facts.nodes as f64).log2().ceil();
    let waits = rounds * farthest.latency;
    if waits < LEAST.max(MOST_PART * step) {
        return None;
    }
    Some((
        Severity::Warning,
        format!(
            "a message between {} and {} takes {}, {} of a step's computing ({}) for the fewest that a step needs",
            facts.name(farthest.from),
            facts.name(farthest.to),
            seconds(farthest.latency),
            percent(waits / step),
            seconds(step)
        ),
        format!(
            "A sum over {} nodes needs {rounds} messages one after another, whatever their bytes, and no step ends before its last \
             sum is back.",
            facts.nodes
        ),
        "Give larger shards, so that there are fewer steps, or synchronize rarely: --sync delayed:1 hides a message behind a whole \
         step, --sync diloco:H=50 has one step in 50 wait. KOLO_STREAMS=4 helps long links that one connection does not fill."
            .into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn it_counts_beside_the_step() {
        let mut facts = example::hosts(3);
        facts.links[1].latency = 0.01;
        let (_, what, why, _) = find(&facts).unwrap();
        assert!(
            what.starts_with("a message between rank 0 on a and rank 2 on c takes 10 ms, 487.8 %"),
            "{what}"
        );
        assert!(why.contains("needs 4 messages"), "{why}");
        (0..3).for_each(|rank| example::trial(&mut facts, rank).shard_seconds = 1.0);
        assert_eq!(find(&facts), None);
        (0..3).for_each(|rank| example::trial(&mut facts, rank).shard_seconds = 0.1);
        assert!(find(&facts).is_some());
        facts.settings.exchange = Exchange::StepLater;
        assert_eq!(find(&facts), None);
    }
}
