//! The order in which buckets are sent.
//!
//! In the order of readiness the gradients of the first layers go last, and the next forward pass needs them
//! first. If the network is slower than the backward pass a queue forms, and the order within it is free:
//! the bucket that is needed first overtakes (Jayarajan et al. 2019, "Priority-based Parameter Propagation
//! for Distributed DNN Training", section 4; Peng et al. 2019, "A Generic Communication Scheduler for
//! Distributed DNN Training Acceleration"). But all ranks must start the same collectives in the same order,
//! and their backward passes differ in time. So one rank simulates a step with the times of the first steps,
//! and all ranks follow the resulting order.

use serde::{Deserialize, Serialize};

/// A place in the order in which the collectives of a step are started, the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LaunchSlot {
    /// The reduction of a bucket.
    Bucket(usize),
    /// The agreement of the ranks; its message is known when the backward pass is over.
    Agreement,
}

/// The slots of a step, and how many of them have been started in the current step.
pub(super) struct LaunchOrder {
    slots: Vec<LaunchSlot>,
    started: usize,
    /// Buckets that had been started before the last backward pass was over.
    pub(super) early: usize,
}

impl LaunchOrder {
    /// Returns the order, before the first start of a step.
    pub(super) fn new(slots: Vec<LaunchSlot>) -> Self {
        LaunchOrder { slots, started: 0, early: 0 }
    }

    /// The next slot; `None` when all have been started.
    pub(super) fn next(&self) -> Option<LaunchSlot> {
        self.slots.get(self.started).copied()
    }

    /// Marks the next slot as started.
    pub(super) fn advance(&mut self) {
        self.started += 1;
    }

    pub(super) fn restart(&mut self) {
        self.started = 0;
    }

    /// The order in which buckets are started, and in which their reductions end.
    pub(super) fn buckets(&self) -> impl Iterator<Item = usize> {
        self.slots.iter().filter_map(|slot| match slot {
            LaunchSlot::Bucket(bucket) => Some(*bucket),
            LaunchSlot::Agreement => None,
        })
    }
}

/// Returns the order before any measurement: buckets in the order of readiness. The agreement comes before
/// the last one, because that one is complete when the pass is over.
pub(super) fn by_readiness(buckets: usize) -> Vec<LaunchSlot> {
    let mut slots: Vec<LaunchSlot> = (0..buckets).map(LaunchSlot::Bucket).collect();
    slots.insert(buckets.saturating_sub(1), LaunchSlot::Agreement);
    slots
}

/// The times of one bucket, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    /// From the start of the backward pass until its gradients are complete.
    pub(super) ready: f64,
    /// On the wire.
    pub(super) travel: f64,
}

/// Returns the order in which the network would take the buckets: whenever it is free, the one of the ready
/// buckets that is needed first. Buckets are numbered by readiness, so the later ones are needed sooner. The
/// agreement comes before all of them; it is ready when the pass is over, after `pass` seconds, and takes no
/// time.
pub(super) fn by_need(buckets: &[Expected], pass: f64) -> Vec<LaunchSlot> {
    // Ordered by need.
    let mut waiting: Vec<(LaunchSlot, Expected)> =
        vec![(LaunchSlot::Agreement, Expected { ready: pass, travel: 0.0 })];
    let buckets = buckets.iter().enumerate().rev();
    waiting.extend(buckets.map(|(bucket, times)| (LaunchSlot::Bucket(bucket), *times)));
    let (mut now, mut slots) = (0.0, Vec::with_capacity(waiting.len()));
    while !waiting.is_empty() {
        let soonest = waiting.iter().map(|(_, times)| times.ready).fold(f64::INFINITY, f64::min);
        now = soonest.max(now);
        let next = waiting.iter().position(|(_, times)| times.ready <= now).unwrap_or(0);
        let (slot, times) = waiting.remove(next);
        now += times.travel;
        slots.push(slot);
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::LaunchSlot::{Agreement, Bucket};
    use super::*;

    /// Buckets that are ready one after another, a second apart.
    fn steady(count: usize, travel: f64) -> Vec<Expected> {
        (0..count).map(|i| Expected { ready: (i + 1) as f64, travel }).collect()
    }

    #[test]
    fn a_quick_wire_takes_them_as_they_come() {
        let slots = by_need(&steady(4, 0.5), 4.1);
        assert_eq!(slots, [Bucket(0), Bucket(1), Bucket(2), Bucket(3), Agreement]);
    }

    #[test]
    fn on_a_slow_wire_what_is_needed_first_overtakes() {
        // Bucket 0 is on the wire until second 4; by then 1, 2 and 3 wait.
        let slots = by_need(&steady(5, 3.0), 5.0);
        assert_eq!(slots, [Bucket(0), Bucket(3), Agreement, Bucket(4), Bucket(2), Bucket(1)]);
    }

    #[test]
    fn nothing_is_lost_without_times() {
        let unknown = Expected { ready: f64::INFINITY, travel: 0.0 };
        assert_eq!(by_need(&[unknown; 2], f64::INFINITY).len(), 3);
        assert_eq!(by_readiness(0), [Agreement]);
        assert_eq!(by_readiness(2), [Bucket(0), Agreement, Bucket(1)]);
    }
}
