//! The pace of a run on a line of progress.

use std::time::Duration;

use crate::meter::StepRow;
use crate::progress::Progress;

/// Steps and samples since this writer began. Rate and remaining time are both of that window, evaluations
/// and all other pauses included, so that the one follows from the other.
#[derive(Debug)]
pub(super) struct Pace {
    first_step: u64,
    pub(super) total: u64,
    /// Steps done since, repeated ones included, and their samples.
    steps: u64,
    samples: f64,
}

impl Pace {
    pub(super) fn from(progress: &Progress) -> Self {
        Pace { first_step: progress.step(), total: progress.total(), steps: 0, samples: 0.0 }
    }

    pub(super) fn add(&mut self, row: &StepRow) {
        self.steps += 1;
        self.samples += row.count as f64;
    }

    /// Returns the samples a second, and the seconds until the end, if `done` steps of the run are done
    /// after so much time. Steps that were repeated count once.
    pub(super) fn after(&self, done: u64, elapsed: Duration) -> (f64, f64) {
        let progress = done.saturating_sub(self.first_step).max(1) as f64;
        let seconds = elapsed.as_secs_f64();
        let samples = self.samples / self.steps.max(1) as f64 * progress;
        (samples / seconds.max(1e-9), seconds / progress * self.total.saturating_sub(done) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::Calendar;

    #[test]
    fn the_remaining_samples_at_the_rate_take_the_remaining_time() {
        let progress = Progress::at(2, Calendar::for_tests(10, 12));
        let mut pace = Pace::from(&progress);
        (0..4).for_each(|_| pace.add(&StepRow { count: 30, ..StepRow::default() }));
        // An evaluation made 4 steps take 8 s; 6 steps of 30 samples are left.
        let (rate, left) = pace.after(6, Duration::from_secs(8));
        assert_eq!((rate, left, rate * left), (15.0, 12.0, 180.0));
        // A death: two of the steps are done again, so that six bring the run as far as four.
        (0..2).for_each(|_| pace.add(&StepRow { count: 30, ..StepRow::default() }));
        assert_eq!(pace.after(6, Duration::from_secs(12)), (10.0, 18.0));
        let (rate, left) = Pace::from(&progress).after(2, Duration::ZERO);
        assert!(rate.is_finite() && left.is_finite(), "{rate} {left}");
    }
}
