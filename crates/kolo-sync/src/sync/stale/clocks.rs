//! Progress of each worker in a round, and the pulls that it allows. It uses no threads or messages.

/// Steps of a round that each worker has pushed.
pub(super) struct Clocks {
    pushed: Vec<u64>,
    /// K
    bound: u64,
}

impl Clocks {
    /// Creates the clocks at the beginning of a round. A worker may pull while it is at most `bound` steps
    /// ahead of the slowest one.
    pub(super) fn new(workers: usize, bound: u64) -> Self {
        Clocks { pushed: vec![0; workers], bound }
    }

    /// Counts the next push of a worker.
    pub(super) fn push(&mut self, worker: usize) {
        self.pushed[worker] += 1;
    }

    /// Returns the number of steps that a worker has pushed.
    pub(super) fn of(&self, worker: usize) -> u64 {
        self.pushed[worker]
    }

    /// Returns the number of steps that all workers have pushed.
    pub(super) fn of_slowest(&self) -> u64 {
        self.pushed.iter().copied().min().unwrap_or(0)
    }

    /// Returns the worker that has pushed the fewest steps, the first of equals.
    pub(super) fn slowest(&self) -> usize {
        (0..self.pushed.len()).min_by_key(|worker| self.pushed[*worker]).unwrap_or(0)
    }

    /// Returns the number of steps that the furthest worker has pushed.
    pub(super) fn of_fastest(&self) -> u64 {
        self.pushed.iter().copied().max().unwrap_or(0)
    }

    /// Returns true if a worker may pull now. The pulled values then include all updates of steps up to K
    /// before its last one; all updates at all where its round `ends`.
    pub(super) fn may_pull(&self, worker: usize, ends: bool) -> bool {
        let bound = if ends { 0 } else { self.bound };
        self.behind(worker) <= bound
    }

    /// Returns the number of steps that a worker's pull would be behind now.
    pub(super) fn behind(&self, worker: usize) -> u64 {
        self.of(worker) - self.of_slowest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_runs_ahead_of_a_blocked_one_by_the_bound_and_no_further() {
        for bound in 0..5 {
            let mut clocks = Clocks::new(3, bound);
            // The third worker is blocked.
            for step in 0..=bound {
                assert!(clocks.behind(0) <= bound);
                [0, 1].into_iter().for_each(|worker| clocks.push(worker));
                assert_eq!((clocks.may_pull(0, false), clocks.behind(1)), (step < bound, step + 1));
                assert!(!clocks.may_pull(0, true));
            }
            assert_eq!(clocks.slowest(), 2);
            clocks.push(2);
            assert!(clocks.may_pull(0, false) && clocks.may_pull(2, false));
            assert_eq!((clocks.of_slowest(), clocks.of_fastest(), clocks.behind(2)), (1, bound + 1, 0));
        }
    }

    /// Workers that continue at random whenever they may are never further apart than the bound and one
    /// step.
    #[test]
    fn no_order_of_events_breaks_the_bound() {
        let mut random = 1_u64;
        for bound in 0..4 {
            let mut clocks = Clocks::new(4, bound);
            let mut waits = [false; 4];
            for _ in 0..2_000 {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let worker = (random >> 33) as usize % 4;
                if !waits[worker] {
                    clocks.push(worker);
                    waits[worker] = true;
                }
                assert!(clocks.of_fastest() - clocks.of_slowest() <= bound + 1);
                for (worker, waits) in waits.iter_mut().enumerate() {
                    *waits &= !clocks.may_pull(worker, false);
                }
                assert!(waits.contains(&false), "somebody can always go on");
            }
        }
    }
}
