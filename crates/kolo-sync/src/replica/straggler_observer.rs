//! Observer of steps for slow ranks: times this rank, and compares it with the others at intervals.

use std::sync::Arc;
use std::time::Duration;

use kolo_comm::Group;

use kolo_straggler::{Findings, Policy, StepTiming, StragglerDetector, Times};

use kolo_step::Step;

/// Conclusions of all ranks from a comparison of their times; empty in a step without one.
#[derive(Debug, Default)]
pub struct Compared {
    /// Compared times of all ranks, in rank order.
    pub(crate) times: Vec<Times>,
    pub(crate) findings: Findings,
}

impl Compared {
    /// Of two steps that end together, returns the later one's, unless it had no comparison.
    pub(crate) fn or(self, earlier: Compared) -> Compared {
        if self.times.is_empty() { earlier } else { self }
    }
}

/// One rank's view of the slow ranks in its group.
#[derive(Debug)]
pub struct StragglerObserver {
    timing: StepTiming,
    detector: StragglerDetector,
}

impl StragglerObserver {
    /// Watches a group that begins with these shares; `servers` marks summation servers.
    pub(crate) fn new(policy: Policy, shares: Vec<usize>, servers: Arc<[bool]>) -> Self {
        let detector = StragglerDetector::new(policy, shares, servers);
        StragglerObserver { timing: StepTiming::default(), detector }
    }

    /// Adds time in which the training thread has waited for data since the last step.
    pub fn data_waited(&mut self, time: Duration) {
        self.timing.data_waited(time);
    }

    /// Ends this rank's part of the step. Returns the numbers that it sends with the agreement, if a
    /// comparison of all ranks is due.
    pub(crate) fn passes_over(&mut self, step: &Step, world: usize) -> Option<Vec<f64>> {
        self.timing.passes_over(step.exposed());
        if !step.is_synchronized() {
            // In such steps ranks may reach this point a different number of times.
            self.timing.forget();
            return None;
        }
        let is_due = self.timing.is_full() && world > 1;
        is_due.then(|| self.timing.take(step.shards().len(), step.buckets().count()).encode())
    }

    /// Draws the conclusions from the times of all ranks, if they were sent in this step; the same on all
    /// ranks.
    pub(crate) fn compare_times(&mut self, numbers: Option<&[f64]>, world: usize) -> Compared {
        let Some(numbers) = numbers else { return Compared::default() };
        let times = Times::decode(numbers, world);
        Compared { findings: self.detector.compare(&times), times }
    }

    /// Takes the result of the move to the shares that [`StragglerObserver::compare_times`] has found better,
    /// or the reason why they are not possible.
    pub(crate) fn rebalanced(&mut self, result: &Result<(), String>) {
        match result {
            Ok(()) => self.timing.forget(),
            Err(_) => self.detector.stop_rebalancing(),
        }
    }

    /// Ends the step, in which the training thread waited `exposed` for communication.
    pub(crate) fn step_over(&mut self, exposed: Duration, step: &Step, group: &Group) {
        self.timing.step_over(exposed, step.ready_times(), group.waited());
    }
}
