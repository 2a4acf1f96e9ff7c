//! Time in which at least one bucket was being reduced.

use std::time::{Duration, Instant};

use kolo_comm::Timing;

/// Number of intervals that a later one may overlap.
const KEPT: usize = 64;

/// Length of the union of intervals, which may overlap and come in any order.
#[derive(Debug, Default)]
pub(super) struct WireTime {
    /// Last intervals, joined where they overlapped.
    recent: Vec<(Instant, Instant)>,
    length: Duration,
}

impl WireTime {
    /// Adds the part of an interval that no earlier one covers.
    pub(super) fn add(&mut self, Timing { started, ended }: Timing) {
        let (mut joined, mut covered) = ((started, ended), Duration::ZERO);
        self.recent.retain(|&(from, until)| {
            let is_apart = until < started || ended < from;
            if !is_apart {
                covered += until.min(ended) - from.max(started);
                joined = (joined.0.min(from), joined.1.max(until));
            }
            is_apart
        });
        self.length += (ended - started).saturating_sub(covered);
        if self.recent.len() == KEPT {
            self.recent.remove(0);
        }
        self.recent.push(joined);
    }

    /// Returns the length since the last call.
    pub(super) fn take(&mut self) -> Duration {
        std::mem::take(&mut self.length)
    }

    /// Continues from `other`, which becomes empty.
    pub(super) fn follow(&mut self, other: &mut WireTime) {
        let length = self.length + other.length;
        *self = WireTime { length, recent: std::mem::take(&mut other.recent) };
        other.length = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_counts_once_in_any_order() {
        let origin = Instant::now();
        let at = |ms: u64| origin + Duration::from_millis(ms);
        let mut wire = WireTime::default();
        let add = |wire: &mut WireTime, intervals: &[(u64, u64)]| {
            for (from, until) in intervals {
                wire.add(Timing { started: at(*from), ended: at(*until) });
            }
            wire.take().as_millis()
        };
        assert_eq!(add(&mut wire, &[(10, 20), (15, 30), (10, 20), (40, 50)]), 30);
        // Of an earlier step, on its way until now: it covers the gap.
        assert_eq!(add(&mut wire, &[(5, 60)]), 25);
        assert_eq!(add(&mut wire, &[(20, 55)]), 0);
        assert_eq!(add(&mut wire, &[(60, 61), (70, 70)]), 1);
        let many: Vec<(u64, u64)> = (0..200).map(|n| (100 + 10 * n, 105 + 10 * n)).collect();
        assert_eq!(add(&mut wire, &many), 1000);
        let mut next = WireTime::default();
        next.follow(&mut wire);
        assert_eq!(add(&mut next, &[(2090, 2100)]), 5);
    }
}
