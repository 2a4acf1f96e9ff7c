//! A policy that moves shards, without shards to move.

use kolo_report::units::plural;

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check =
    Check { name: "rebalance", about: "--straggler rebalance without shards that could move", find };

fn find(facts: &Facts) -> Option<Found> {
    let settings = &facts.settings;
    let (shards, workers) = (settings.shards(), settings.workers());
    if settings.straggler != "rebalance" || workers < 2 || shards > workers {
        return None;
    }
    Some((
        Severity::Warning,
        format!(
            "--straggler rebalance with {} on {} has none to move",
            plural(shards, "shard"),
            plural(workers, "worker")
        ),
        "Whole shards move away from a slow worker, and it keeps one, by which it is measured: with one each everybody stays as slow as \
         the slowest."
            .into(),
        format!(
            "Give several shards a worker, as --shards {}, and a --batch-size as much smaller, so that the global batch stays.",
            4 * workers
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn there_must_be_more_shards_than_workers() {
        let mut facts = example::one_host(2);
        facts.settings.straggler = "rebalance".into();
        assert!(find(&facts).unwrap().3.contains("--shards 8"));
        facts.settings.shares = vec![2, 2];
        assert_eq!(find(&facts), None);
    }
}
