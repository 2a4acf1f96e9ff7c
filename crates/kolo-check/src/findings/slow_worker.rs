//! A worker that computes more slowly than the others.

use kolo_comm::schedule::seconds::LEAST;
use kolo_report::units::{number, seconds};

use super::cores::takes_turns;
use super::{Check, Found, Severity};
use crate::facts::Facts;
use crate::trial::TrialStep;

pub(super) const CHECK: Check =
    Check { name: "slow worker", about: "a worker whose shard takes 1.3 times as long as the others'", find };

/// Ratio to the other workers' time from which a worker is slow. This and [`LEAST`] are the same as for
/// stragglers (docs/stragglers.md).
const SLOW: f64 = 1.3;

fn find(facts: &Facts) -> Option<Found> {
    let times: Vec<(usize, f64)> =
        facts.workers().filter_map(|(rank, _)| Some((rank, facts.trial(rank)?.shard_seconds))).collect();
    let (rank, slowest) = *times.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let middle_of = |value: fn(&TrialStep) -> f64| {
        let others = facts.workers().filter(|(other, _)| *other != rank);
        let mut values: Vec<f64> = others.filter_map(|(other, _)| facts.trial(other).map(value)).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    let middle = middle_of(|step| step.shard_seconds)?;
    // Its fastest step is compared with the others' usual one: the difference must exceed what they measured
    // of their own noise.
    let is_within_noise = slowest < SLOW * middle_of(|step| step.usual_shard_seconds)?;
    // A slow worker with fewer shards is no finding if the others do not wait for it.
    let share = |rank: usize| {
        let place = facts.workers().position(|(other, _)| other == rank)?;
        Some(*facts.settings.shares.get(place)? as f64)
    };
    let is_short = (slowest - middle) * share(rank)? < LEAST;
    let most = times.iter().filter_map(|(other, time)| (*other != rank).then_some(time * share(*other)?));
    let waits = slowest * share(rank)? > SLOW * most.fold(0.0, f64::max);
    if slowest < SLOW * middle || is_within_noise || is_short || !waits || takes_turns(facts, rank) {
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
        facts.settings.shares = vec![2; 3];
        example::trial(&mut facts, 1).shard_seconds = 0.0105;
        assert!(find(&facts).unwrap().1.starts_with("rank 1 on b takes 10.5 ms for a shard, 1.31 times"));
        example::trial(&mut facts, 1).shard_seconds = 0.0103;
        assert_eq!(find(&facts), None);
    }

    #[test]
    fn noise_and_turns_are_no_slow_worker() {
        let slow = |seconds: f64| {
            let mut facts = example::one_host(4);
            example::trial(&mut facts, 1).shard_seconds = seconds;
            facts
        };
        assert!(find(&slow(0.02)).is_some());
        // The steps of the others vary as much.
        let mut noisy = slow(0.02);
        noisy.ranks.iter_mut().for_each(|rank| match &mut rank.trial {
            crate::trial::Trial::Taken(step) => step.usual_shard_seconds = 0.016,
            other => panic!("{other:?}"),
        });
        assert_eq!(find(&noisy), None);
        // Two processors for four workers: their turns explain it, and a worker elsewhere stays slow.
        let mut crowded = slow(0.02);
        crowded.ranks.iter_mut().for_each(|rank| rank.cpu.allowed.truncate(2));
        assert_eq!(find(&crowded), None);
        crowded.ranks[1].cpu.allowed = vec![7];
        crowded.ranks[1].host.boot = "boot of b".into();
        assert!(find(&crowded).is_some());
        // 1.93 against 1.33 ms: below a time slice of the scheduler.
        let mut short = slow(0.00193);
        for rank in [0, 2, 3] {
            let step = example::trial(&mut short, rank);
            (step.shard_seconds, step.usual_shard_seconds) = (0.00133, 0.00133);
        }
        assert_eq!(find(&short), None);
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
