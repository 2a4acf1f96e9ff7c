//! Watches steps for slow ranks, from outside of them: times this rank, and compares it with the others now
//! and then.

use std::sync::Arc;
use std::time::Duration;

use kolo_comm::Group;

use super::detector::{Findings, StragglerDetector};
use super::diagnose::{Straggler, Times};
use super::policy::Policy;
use super::rebalance::Rebalance;
use super::step_timing::StepTiming;
use crate::step::Step;

/// What all ranks conclude from a comparison of their times; nothing where there was none.
#[derive(Default)]
pub(crate) struct Compared {
    /// What was compared, a value a rank.
    pub(crate) times: Vec<Times>,
    /// A rank that holds the others up.
    pub(crate) straggler: Option<Straggler>,
    /// Better shares.
    pub(crate) rebalance: Option<Rebalance>,
}

impl Compared {
    /// Of two steps that end together the later one, unless nothing was compared in it.
    pub(crate) fn or(self, earlier: Compared) -> Compared {
        if self.times.is_empty() { earlier } else { self }
    }
}

/// One rank's view of who is slow in its group.
pub(crate) struct StragglerObserver {
    timing: StepTiming,
    detector: StragglerDetector,
}

impl StragglerObserver {
    /// Watches a group that begins with these shares, whose ranks are summation servers or not.
    pub(crate) fn new(policy: Policy, shares: Vec<usize>, servers: Arc<[bool]>) -> Self {
        let detector = StragglerDetector::new(policy, shares, servers);
        StragglerObserver { timing: StepTiming::default(), detector }
    }

    /// The training thread has waited so long for data since the last step.
    pub(crate) fn data_waited(&mut self, time: Duration) {
        self.timing.data_waited(time);
    }

    /// This rank's part of the step is done. If a comparison of all ranks is due: what it tells the others
    /// with the agreement.
    pub(crate) fn passes_over(&mut self, step: &Step, world: usize) -> Option<Vec<f64>> {
        self.timing.passes_over(step.exposed());
        if !step.is_synchronised() {
            // Not all ranks need have come here equally often with steps that count.
            self.timing.forget();
            return None;
        }
        let is_due = self.timing.is_full() && world > 1;
        is_due.then(|| self.timing.take(step.shards().len(), step.buckets().count()).encode())
    }

    /// What follows from the times of all ranks, if they were told in this step. All ranks conclude the same.
    pub(crate) fn heard(&mut self, numbers: Option<&[f64]>, world: usize) -> Compared {
        let Some(numbers) = numbers else { return Compared::default() };
        let times = Times::decode(numbers, world);
        let Findings { straggler, rebalance } = self.detector.compare(&times);
        Compared { times, straggler, rebalance }
    }

    /// What has become of the shares that [`StragglerObserver::heard`] has found better: why they cannot be
    /// had, if so.
    pub(crate) fn rebalanced(&mut self, result: &Result<(), String>) {
        match result {
            Ok(()) => self.timing.forget(),
            Err(_) => self.detector.stop_rebalancing(),
        }
    }

    /// The step is over, in which the training thread waited so long for communication.
    pub(crate) fn step_over(&mut self, exposed: Duration, step: &Step, group: &Group) {
        self.timing.step_over(exposed, step.ready_times(), group.waited());
    }
}
