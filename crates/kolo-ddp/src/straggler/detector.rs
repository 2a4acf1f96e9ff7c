//! From look to look: what has been seen before, so that one disturbed look is no finding. Only what all ranks know goes in,
//! so all of them hold the same.

use super::diagnose::{Cause, Straggler, Times, diagnose};
use super::shed::{Shed, shed};
use super::{Policy, median};
use kolo_comm::Rank;

/// What a look leads to.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Verdict {
    /// A rank found slow in two looks in a row, and not told of yet.
    pub(crate) straggler: Option<Straggler>,
    /// Other shares, worth it in two looks in a row.
    pub(crate) shed: Option<Shed>,
}

/// See the module's text.
pub(crate) struct Scout {
    policy: Policy,
    /// The shares that the job began with.
    usual: Vec<usize>,
    /// Each rank's last measured seconds a shard; who has no shards may have had some.
    seconds: Vec<Option<f64>>,
    /// What the last look saw, and what has been told.
    seen: Option<(Rank, Cause)>,
    told: Option<(Rank, Cause)>,
    /// Whether the last look would have moved shards.
    unbalanced: bool,
}

impl Scout {
    pub(crate) fn new(policy: Policy, usual: Vec<usize>) -> Self {
        let seconds = vec![None; usual.len()];
        Scout { policy, usual, seconds, seen: None, told: None, unbalanced: false }
    }

    /// Draws the conclusions from one look.
    pub(crate) fn look(&mut self, times: &[Times]) -> Verdict {
        let found = diagnose(times);
        let name = found.as_ref().map(|found| (found.rank, found.cause));
        let again = name == std::mem::replace(&mut self.seen, name);
        if name.is_none() && again {
            self.told = None;
        }
        let news = again && name.is_some() && name != self.told;
        if news {
            self.told = name;
        }
        Verdict { straggler: found.filter(|_| news), shed: self.shed(times) }
    }

    /// No shares but these are possible: nothing is to be moved any more.
    pub(crate) fn give_up_shedding(&mut self) {
        self.policy = Policy::Warn;
    }

    fn shed(&mut self, times: &[Times]) -> Option<Shed> {
        for (known, times) in self.seconds.iter_mut().zip(times).filter(|(_, times)| times.shards > 0) {
            *known = Some(times.busy() / times.shards as f64);
        }
        if self.policy != Policy::Shed {
            return None;
        }
        let usual = median(self.seconds.iter().filter_map(|known| *known));
        let seconds: Vec<f64> = self.seconds.iter().map(|known| known.unwrap_or(usual)).collect();
        let current: Vec<usize> = times.iter().map(|times| times.shards).collect();
        let found = shed(&seconds, &current, &self.usual);
        let before = std::mem::replace(&mut self.unbalanced, found.is_some());
        found.filter(|_| {
            self.unbalanced = !before;
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
    fn two_looks_in_a_row_make_a_finding_which_is_told_once() {
        let mut scout = Scout::new(Policy::Warn, vec![1, 1]);
        let (even, uneven) = ([times(1, 0.2), times(1, 0.2)], [times(1, 0.2), times(1, 0.4)]);
        let told = [
            &uneven, &even, &uneven, &uneven, &uneven, &even, &uneven, &uneven, &even, &even, &uneven,
            &uneven,
        ]
        .map(|look| scout.look(look).straggler.map(|found| found.rank.0));
        let mut expected = [None; 12];
        (expected[3], expected[11]) = (Some(1), Some(1));
        assert_eq!(told, expected);
    }

    #[test]
    fn shards_move_after_two_looks_and_come_back() {
        let mut scout = Scout::new(Policy::Shed, vec![2, 2]);
        let look = |scout: &mut Scout, shares: [usize; 2], seconds: [f64; 2]| {
            let times = [0, 1].map(|rank| times(shares[rank], shares[rank] as f64 * seconds[rank]));
            scout.look(&times).shed.map(|shed| shed.shares)
        };
        let slow = [0.1, 0.4];
        assert_eq!(look(&mut scout, [2, 2], slow), None);
        assert_eq!(look(&mut scout, [2, 2], [0.1, 0.1]), None);
        assert_eq!(look(&mut scout, [2, 2], slow), None);
        assert_eq!(look(&mut scout, [2, 2], slow), Some(vec![3, 1]));
        assert_eq!(look(&mut scout, [3, 1], slow), None);
        assert_eq!(look(&mut scout, [3, 1], [0.1, 0.1]), None);
        assert_eq!(look(&mut scout, [3, 1], [0.1, 0.1]), Some(vec![2, 2]));
        scout.give_up_shedding();
        assert!((0..3).all(|_| look(&mut scout, [2, 2], slow).is_none()));
    }

    #[test]
    fn who_warns_moves_nothing() {
        let mut scout = Scout::new(Policy::Warn, vec![2, 2]);
        assert!((0..3).all(|_| scout.look(&[times(2, 0.1), times(2, 0.9)]).shed.is_none()));
    }
}
