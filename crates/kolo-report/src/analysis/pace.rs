//! Duration of a step once the run has settled.

use kolo_run_folder::{Run, StepRow, median};

/// Number of first steps that do not count: they allocate memory, or are profiled, which exposes all
/// communication.
const FIRST: usize = 6;

/// Minimum number of settled steps.
const LEAST: usize = 10;

/// Time of a run's settled steps on rank 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace<'a> {
    /// All steps but the first.
    pub(crate) steps: &'a [StepRow],
    /// Duration of these steps, in seconds.
    pub(crate) seconds: f64,
    /// Seconds in which the training thread waited for communication.
    pub(crate) exposed: f64,
    /// Part of `exposed` in which no bucket was being reduced, because another rank had not come as far.
    pub(crate) rank_wait: f64,
    /// Duration of the median step, in seconds.
    pub(crate) median: f64,
}

impl<'a> Pace<'a> {
    /// Returns `None` if the run has too few steps.
    pub(crate) fn of(run: &'a Run) -> Option<Self> {
        let steps = run.steps.get(FIRST..).filter(|steps| steps.len() >= LEAST)?;
        let seconds: f64 = steps.iter().map(|step| step.seconds).sum();
        let exposed = steps.iter().map(|step| step.exposed_seconds).sum();
        let rank_wait = steps.iter().map(StepRow::rank_wait_seconds).sum();
        let median = median(steps.iter().map(|step| step.seconds))?;
        (seconds > 0.0).then_some(Pace { steps, seconds, exposed, rank_wait, median })
    }

    /// Share of time in which the training thread waited for communication.
    pub(crate) fn exposed_share(&self) -> f64 {
        self.exposed / self.seconds
    }

    /// Share of time in which it waited while a bucket was being reduced.
    pub(crate) fn wire_wait_share(&self) -> f64 {
        (self.exposed - self.rank_wait) / self.seconds
    }

    /// Seconds of waiting for communication in the median step.
    pub(crate) fn exposed_a_step(&self) -> f64 {
        median(self.steps.iter().map(|step| step.exposed_seconds)).unwrap_or(0.0)
    }

    /// Seconds of all other work in the median step.
    pub(crate) fn compute_a_step(&self) -> f64 {
        median(self.steps.iter().map(StepRow::compute_seconds)).unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn the_first_steps_do_not_count() {
        let mut run = example::run(100);
        run.steps[0].seconds = 1000.0;
        let pace = Pace::of(&run).unwrap();
        assert_eq!(pace.steps.len(), 94);
        assert!(pace.seconds < 100.0 && pace.exposed_share() < 0.1);
        assert!((pace.median - pace.compute_a_step() - pace.exposed_a_step()).abs() < 2e-3);
        run.steps.truncate(12);
        assert!(Pace::of(&run).is_none(), "too young");
    }
}
