//! Remembers earlier comparisons of the ranks' times, so that one disturbed comparison is no finding. Only
//! what all ranks know goes in, so all of them hold the same.

use super::diagnose::{Cause, Straggler, Times, diagnose};
use super::median::median;
use super::policy::Policy;
use super::rebalance::{Rebalance, rebalance};
use crate::shares::of_workers;
use kolo_comm::Rank;
use std::sync::Arc;

/// What a comparison of all ranks' times leads to.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Findings {
    /// A rank found slow in two comparisons in a row, and not reported yet.
    pub(super) straggler: Option<Straggler>,
    /// Other shares, worth it in two comparisons in a row.
    pub(super) rebalance: Option<Rebalance>,
}

/// Finds slow ranks and better shares from comparison to comparison.
pub(super) struct StragglerDetector {
    policy: Policy,
    /// The shares that the job began with.
    usual: Vec<usize>,
    /// Which ranks are summation servers, to which no shard moves.
    servers: Arc<[bool]>,
    /// Each rank's last measured seconds a shard; who has no shards may have had some.
    seconds: Vec<Option<f64>>,
    /// Who was slow in the last comparison.
    seen: Option<(Rank, Cause)>,
    /// Who has been reported.
    reported: Option<(Rank, Cause)>,
    /// Whether the last comparison would have moved shards.
    is_unbalanced: bool,
}

impl StragglerDetector {
    /// A detector that has seen nothing yet, of a job that began with these shares.
    pub(super) fn new(policy: Policy, usual: Vec<usize>, servers: Arc<[bool]>) -> Self {
        let seconds = vec![None; usual.len()];
        StragglerDetector {
            policy,
            usual,
            servers,
            seconds,
            seen: None,
            reported: None,
            is_unbalanced: false,
        }
    }

    /// Draws the conclusions from one comparison.
    pub(super) fn compare(&mut self, times: &[Times]) -> Findings {
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

    /// No shares but these are possible: nothing is to be moved any more.
    pub(super) fn stop_rebalancing(&mut self) {
        self.policy = Policy::Warn;
    }

    fn rebalance(&mut self, times: &[Times]) -> Option<Rebalance> {
        for (known, times) in self.seconds.iter_mut().zip(times).filter(|(_, times)| times.shards > 0) {
            *known = Some(times.busy() / times.shards as f64);
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
        let of_all =
            |found: Rebalance| Rebalance { shares: of_workers(&found.shares, &self.servers), ..found };
        let found = rebalance(&seconds, &current, &at_first).map(of_all);
        let before = std::mem::replace(&mut self.is_unbalanced, found.is_some());
        found.filter(|_| {
            self.is_unbalanced = !before;
            before
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(shards: usize, compute: f64) -> Times {
        let none = Vec::new();
        Times { shards, compute, data: 0.0, exposed: 0.0, waited_for: None, ready: none }
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

    #[test]
    fn who_warns_moves_nothing() {
        let mut detector = StragglerDetector::new(Policy::Warn, vec![2, 2], [false; 2].into());
        assert!((0..3).all(|_| detector.compare(&[times(2, 0.1), times(2, 0.9)]).rebalance.is_none()));
    }
}
