//! Memory of earlier comparisons of the ranks' times, so that one disturbed comparison yields no finding.
//! Only values that all ranks know enter, so all of them have the same.

use super::diagnose::{Cause, Straggler, Times, diagnose};
use super::hysteresis::Hysteresis;
use super::median::median;
use super::policy::Policy;
use super::rebalance::{Rebalance, rebalance};
use super::stalls::Stalls;
use kolo_sampler::of_workers;
use kolo_schedule::Rank;
use std::sync::Arc;

/// Result of a comparison of all ranks' times.
#[derive(Debug, Default, PartialEq)]
pub struct Findings {
    /// A rank found slow in two comparisons in a row, and not reported yet.
    pub straggler: Option<Straggler>,
    /// Other shares, better in two comparisons in a row.
    pub rebalance: Option<Rebalance>,
}

/// Finds slow ranks and better shares from comparison to comparison.
#[derive(Debug)]
pub struct StragglerDetector {
    policy: Policy,
    /// The shares that the job began with.
    usual: Vec<usize>,
    /// Which ranks are summation servers, to which no shard moves.
    servers: Arc<[bool]>,
    /// Time that all ranks have lost in stalls.
    stalls: Stalls,
    /// Each rank's last measured seconds a shard, also if it has no shards now.
    seconds: Vec<Option<f64>>,
    /// The slow rank of the last comparison.
    seen: Option<(Rank, Cause)>,
    /// The last reported one.
    reported: Option<(Rank, Cause)>,
    hysteresis: Hysteresis,
}

impl StragglerDetector {
    /// Creates a detector of a job that began with these shares.
    pub fn new(policy: Policy, usual: Vec<usize>, servers: Arc<[bool]>) -> Self {
        let (stalls, seconds) = (Stalls::new(usual.len()), vec![None; usual.len()]);
        StragglerDetector {
            policy,
            usual,
            servers,
            stalls,
            seconds,
            seen: None,
            reported: None,
            hysteresis: Hysteresis::new(),
        }
    }

    /// Compares the ranks' times with earlier ones.
    pub fn compare(&mut self, times: &[Times]) -> Findings {
        let times = &self.stalls.count(times);
        let found = diagnose(times);
        let name = found.as_ref().map(|found| (found.rank, found.cause));
        let again = name == std::mem::replace(&mut self.seen, name);
        if name.is_none() && again {
            self.reported = None;
        }
        let is_new = again && name.is_some() && name != self.reported;
        if is_new {
            self.reported = name;
        }
        Findings { straggler: found.filter(|_| is_new), rebalance: self.rebalance(times) }
    }

    /// Stops looking for better shares: no others are possible.
    pub fn stop_rebalancing(&mut self) {
        self.policy = Policy::Warn;
    }

    /// Looks for better shares by the times with the stalls that count. Shards come back to a relieved rank
    /// when it has no stalls any more, whether they stand out or not: with fewer shards its steps may be so
    /// short that stalls miss most of them, which then no median shows.
    fn rebalance(&mut self, times: &[Times]) -> Option<Rebalance> {
        for (rank, times) in times.iter().enumerate().filter(|(_, times)| times.shards > 0) {
            let shards = times.shards as f64;
            let recent = match times.shards < self.usual[rank] {
                true => times.busy_without_stalls() / shards + self.stalls.recent(rank),
                false => 0.0,
            };
            self.seconds[rank] = Some(recent.max(times.busy() / shards));
        }
        if self.policy != Policy::Rebalance {
            return None;
        }
        let usual = median(self.seconds.iter().filter_map(|known| *known));
        let works = |rank: &usize| !self.servers[*rank];
        let workers: Vec<usize> = (0..times.len()).filter(works).collect();
        let seconds: Vec<f64> = workers.iter().map(|rank| self.seconds[*rank].unwrap_or(usual)).collect();
        let current: Vec<usize> = workers.iter().map(|rank| times[*rank].shards).collect();
        let at_first: Vec<usize> = workers.iter().map(|rank| self.usual[*rank]).collect();
        let found = rebalance(&seconds, &current, &at_first);
        let comes_back = |found: &Rebalance| {
            (0..workers.len()).any(|rank| current[rank] < at_first[rank].min(found.shares[rank]))
        };
        let is_return = found.as_ref().is_some_and(comes_back);
        let is_time = self.hysteresis.is_time(found.is_some(), is_return);
        let of_all =
            |found: Rebalance| Rebalance { shares: of_workers(&found.shares, &self.servers), ..found };
        found.filter(|_| is_time).map(of_all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EVERY;
    use crate::median::stalls;
    use kolo_sampler::key::Key;

    /// Steps with the noise of an otherwise idle machine.
    fn disturbed_little(base: f64) -> impl FnMut() -> f64 {
        let mut key = Key::new(1);
        move || {
            key = key.with(0);
            base * (0.95 + 0.1 * key.unit())
        }
    }

    fn times(shards: usize, compute: f64) -> Times {
        Times { shards, compute, ..Times::default() }
    }

    #[test]
    fn two_comparisons_in_a_row_make_a_finding_which_is_reported_once() {
        let mut detector = StragglerDetector::new(Policy::Warn, vec![1, 1], [false; 2].into());
        let (even, uneven) = ([times(1, 0.2), times(1, 0.2)], [times(1, 0.2), times(1, 0.4)]);
        let reported = [
            &uneven, &even, &uneven, &uneven, &uneven, &even, &uneven, &uneven, &even, &even, &uneven,
            &uneven,
        ]
        .map(|times| detector.compare(times).straggler.map(|found| found.rank.0));
        let mut expected = [None; 12];
        (expected[3], expected[11]) = (Some(1), Some(1));
        assert_eq!(reported, expected);
    }

    #[test]
    fn shards_move_after_two_comparisons_and_come_back() {
        let mut detector = StragglerDetector::new(Policy::Rebalance, vec![2, 2], [false; 2].into());
        let compare = |detector: &mut StragglerDetector, shares: [usize; 2], seconds: [f64; 2]| {
            let times = [0, 1].map(|rank| times(shares[rank], shares[rank] as f64 * seconds[rank]));
            detector.compare(&times).rebalance.map(|found| found.shares)
        };
        let slow = [0.1, 0.4];
        assert_eq!(compare(&mut detector, [2, 2], slow), None);
        assert_eq!(compare(&mut detector, [2, 2], [0.1, 0.1]), None);
        assert_eq!(compare(&mut detector, [2, 2], slow), None);
        assert_eq!(compare(&mut detector, [2, 2], slow), Some(vec![3, 1]));
        assert_eq!(compare(&mut detector, [3, 1], slow), None);
        assert_eq!(compare(&mut detector, [3, 1], [0.1, 0.1]), None);
        assert_eq!(compare(&mut detector, [3, 1], [0.1, 0.1]), Some(vec![2, 2]));
        detector.stop_rebalancing();
        assert!((0..3).all(|_| compare(&mut detector, [2, 2], slow).is_none()));
    }

    /// As under a CPU quota: a rank with few shards does not use it up.
    #[test]
    fn shards_do_not_come_and_go_for_ever_where_a_rank_is_slow_only_under_load() {
        let mut detector = StragglerDetector::new(Policy::Rebalance, vec![2, 2], [false; 2].into());
        let (mut shares, mut moves) = (vec![2, 2], 0);
        for _ in 0..1000 {
            let seconds = [0.1, if shares[1] == 2 { 0.4 } else { 0.1 }];
            let times = [0, 1].map(|rank| times(shares[rank], shares[rank] as f64 * seconds[rank]));
            if let Some(found) = detector.compare(&times).rebalance {
                (shares, moves) = (found.shares, moves + 1);
            }
        }
        assert!(moves < 30, "{moves}");
    }

    #[test]
    fn no_shard_moves_to_a_server() {
        // One shard on the slow one of two workers, and a server that is idle.
        let mut detector =
            StragglerDetector::new(Policy::Rebalance, vec![1, 0, 1], [false, true, false].into());
        let slow = [times(1, 0.9), times(0, 0.0), times(1, 0.1)];
        assert_eq!(detector.compare(&slow).rebalance, None);
        assert_eq!(detector.compare(&slow).rebalance, None, "a shard is not cut, and the server has none");
        let mut detector =
            StragglerDetector::new(Policy::Rebalance, vec![4, 0, 4], [false, true, false].into());
        let slow = [times(4, 1.2), times(0, 0.0), times(4, 0.4)];
        assert_eq!(detector.compare(&slow).rebalance, None);
        assert_eq!(detector.compare(&slow).rebalance.map(|found| found.shares), Some(vec![2, 0, 6]));
    }

    /// Durations of the steps of a rank that computes for `base` seconds a step, and is stopped for `stop`
    /// seconds whenever it has run for `runs`. Only computing uses up its time.
    fn throttled(base: f64, runs: f64, stop: f64) -> impl FnMut() -> f64 {
        let mut ran = 0.0;
        move || {
            ran += base;
            let stops = (ran / runs).floor();
            ran -= stops * runs;
            base + stops * stop
        }
    }

    /// Durations of the steps on a machine that does other work: a little more or less than `base`, and
    /// every twentieth one much more.
    fn disturbed(base: f64, seed: u64) -> impl FnMut() -> f64 {
        let mut key = Key::new(seed);
        move || {
            key = key.with(0);
            let stall = if key.with(1).below(20) == 0 { 0.3 * key.with(2).unit() } else { 0.0 };
            base * (0.9 + 0.2 * key.with(3).unit()) + stall
        }
    }

    /// Returns the findings of this number of comparisons of ranks, each of which has a shard that takes as
    /// long as its step.
    fn compared(ranks: &mut [Box<dyn FnMut() -> f64>], comparisons: usize) -> Vec<(usize, Straggler)> {
        let mut detector =
            StragglerDetector::new(Policy::Warn, vec![1; ranks.len()], vec![false; ranks.len()].into());
        let compare = |n| {
            let times = ranks.iter_mut().map(|step| {
                let steps: Vec<f64> = (0..EVERY).map(|_| step()).collect();
                Times { compute_stalls: stalls(steps.iter().copied()), ..times(1, median(steps)) }
            });
            Some((n, detector.compare(&times.collect::<Vec<_>>()).straggler?))
        };
        (0..comparisons).filter_map(compare).collect()
    }

    #[test]
    fn a_rank_that_is_stopped_now_and_then_is_found() {
        for base in [0.005, 0.02, 0.04, 0.08, 0.3] {
            // Half of the time, like a CPU quota; and like garbage collection, about every eighth step.
            for (runs, stop) in [(0.1, 0.1), (0.05, 0.05), (8.0 * base, 6.0 * base)] {
                let mut ranks: Vec<Box<dyn FnMut() -> f64>> =
                    vec![Box::new(disturbed_little(base)), Box::new(throttled(base, runs, stop))];
                let found = compared(&mut ranks, 20);
                let [(_, found)] = &found[..] else { panic!("{base}, {runs}, {stop}: {found:?}") };
                assert_eq!((found.rank, found.cause), (Rank(1), Cause::Compute), "{base}, {runs}");
            }
        }
    }

    #[test]
    fn long_pauses_are_no_finding() {
        for pauses in [vec![37], vec![170, 195], vec![20, 150, 399]] {
            let mut step = 0;
            let paused = move || {
                step += 1;
                if pauses.contains(&step) { 30.0 } else { 0.03 }
            };
            let mut ranks: Vec<Box<dyn FnMut() -> f64>> =
                vec![Box::new(disturbed_little(0.03)), Box::new(paused), Box::new(disturbed_little(0.03))];
            assert!(compared(&mut ranks, 20).is_empty());
        }
    }

    #[test]
    fn a_rank_that_is_disturbed_like_the_others_is_no_finding() {
        for (world, seed) in [2, 4, 8].into_iter().flat_map(|world| (0..20).map(move |seed| (world, seed))) {
            for base in [0.005, 0.03, 0.2] {
                let rank =
                    |rank: u64| Box::new(disturbed(base, 100 * seed + rank)) as Box<dyn FnMut() -> f64>;
                let mut ranks: Vec<_> = (0..world).map(rank).collect();
                let found = compared(&mut ranks, 20);
                assert!(found.is_empty(), "{world} ranks, seed {seed}, {base}: {found:?}");
            }
        }
    }

    #[test]
    fn shards_leave_a_rank_that_is_stopped_now_and_then_and_come_back() {
        let mut detector = StragglerDetector::new(Policy::Rebalance, vec![4, 4], [false; 2].into());
        let (mut shares, mut seen) = (vec![4, 4], Vec::new());
        for comparison in 0..30 {
            let lost = if comparison < 15 { 0.01 } else { 0.0 };
            let times = [0, 1].map(|rank| {
                let of_shards = |seconds: f64| seconds * shares[rank] as f64;
                let compute_stalls = of_shards(if rank == 1 { lost } else { 1e-4 });
                Times { compute_stalls, ..times(shares[rank], of_shards(0.01)) }
            });
            if let Some(found) = detector.compare(&times).rebalance {
                shares = found.shares;
            }
            seen.push(shares.clone());
        }
        assert!(seen[..8].iter().all(|shares| *shares == [4, 4]), "{seen:?}");
        assert!(seen[8..16].iter().all(|shares| *shares == [5, 3]), "{seen:?}");
        assert_eq!(seen.last(), Some(&vec![4, 4]), "{seen:?}");
    }

    #[test]
    fn shards_do_not_come_back_to_stalls_that_miss_most_steps() {
        let mut detector = StragglerDetector::new(Policy::Rebalance, vec![2, 2], [false; 2].into());
        let mut compare = |shares: [usize; 2], slow: Times| {
            let found = detector.compare(&[times(shares[0], 0.1 * shares[0] as f64), slow]);
            found.rebalance.map(|found| found.shares)
        };
        assert_eq!(compare([2, 2], times(2, 0.8)), None);
        assert_eq!(compare([2, 2], times(2, 0.8)), Some(vec![3, 1]));
        let stalled = Times { compute_stalls: 0.3, ..times(1, 0.1) };
        assert!((0..20).all(|_| compare([3, 1], stalled.clone()).is_none()));
        let found: Vec<_> = (0..6).filter_map(|_| compare([3, 1], times(1, 0.1))).collect();
        assert_eq!(found[0], [2, 2]);
    }

    #[test]
    fn the_policy_warn_moves_nothing() {
        let mut detector = StragglerDetector::new(Policy::Warn, vec![2, 2], [false; 2].into());
        assert!((0..3).all(|_| detector.compare(&[times(2, 0.1), times(2, 0.9)]).rebalance.is_none()));
    }
}
