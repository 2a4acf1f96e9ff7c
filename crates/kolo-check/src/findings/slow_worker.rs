//! A worker that computes more slowly than the others.

use kolo_report::units::{number, seconds};

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check =
    Check { name: "slow worker", about: "a worker whose shard takes 1.3 times as long as the others'", find };

/// Ratio to the other workers' time from which a worker is slow; the same as for stragglers
/// (docs/stragglers.md).
const SLOW: f64 = 1.3;

fn find(facts: &Facts) -> Option<Found> {
    let times: Vec<(usize, f64)> =
        facts.workers().filter_map(|(rank, _)| Some((rank, facts.trial(rank)?.shard_seconds))).collect();
    let (rank, slowest) = *times.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let mut others: Vec<f64> = times.iter().filter(|time| time.0 != rank).map(|time| time.1).collect();
    others.sort_by(f64::total_cmp);
    let middle = *others.get(others.len() / 2)?;
    // A slow worker with fewer shards is no finding if the others do not wait for it.
    let share = |rank: usize| {
        let place = facts.workers().position(|(other, _)| other == rank)?;
        Some(*facts.settings.shares.get(place)? as f64)
    };
    let most = times.iter().filter_map(|(other, time)| (*other != rank).then_some(time * share(*other)?));
    let waits = slowest * share(rank)? > SLOW * most.fold(0.0, f64::max);
    if slowest < SLOW * middle || !waits {
        return None;
    }
    let shards = facts.settings.shards();
    let remedy = match facts.settings.straggler.as_str() {
        "warn" => {
            "give --straggler rebalance, which moves shards away from it, with several shards a worker (--shards)"
        }
        _ => "give more shards (--shards), so that they can move in small parts",
    };
    Some((
        Severity::Warning,
        format!(
            "{} takes {} for a shard, {} times as long as the others ({})",
            facts.name(rank),
            seconds(slowest),
            number(slowest / middle),
            seconds(middle)
        ),
        format!(
            "A step takes as long as its slowest worker: with {shards} shards everybody waits for it in each."
        ),
        format!(
            "Look for what else its host does (other programs, a CPU limit, a lower clock). Where it is always slower, {remedy}, or \
             --shares with a weight for each worker: the bits stay the same."
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn the_slow_one_is_named_with_its_time() {
        let mut facts = example::hosts(3);
        example::trial(&mut facts, 1).shard_seconds = 0.0105;
        assert!(find(&facts).unwrap().1.starts_with("rank 1 on b takes 10.5 ms for a shard, 1.31 times"));
        example::trial(&mut facts, 1).shard_seconds = 0.0103;
        assert_eq!(find(&facts), None);
    }

    #[test]
    fn shares_that_make_it_good_are_enough() {
        let mut facts = example::one_host(2);
        example::trial(&mut facts, 1).shard_seconds = 0.024;
        assert!(find(&facts).unwrap().3.contains("--straggler rebalance, which"));
        facts.settings.shares = vec![3, 1];
        assert_eq!(find(&facts), None);
    }
}
