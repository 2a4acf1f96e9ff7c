//! A replica's tuner and its measurements.

use std::time::Instant;

use kolo_step::{Tuner, Tuning};

/// Tuner of a replica's steps, its inputs and its results.
#[derive(Debug, Default)]
pub struct TuningObserver {
    /// `None` where steps are not tuned.
    pub(super) tuner: Option<Tuner>,
    /// True if every step uses another setting, for tests and `kolo verify`.
    pub(super) is_hasty: bool,
    /// Time at which the passes of the last step ended.
    pub(super) passes_over: Option<Instant>,
    /// Rates of the ranks' links as last measured.
    pub(super) link_rates: Option<Vec<f64>>,
    /// Result of tuning that has not been reported yet.
    pub(super) kept: Option<Tuning>,
}

impl TuningObserver {
    /// Returns the seconds between the ends of the previous step's passes and of this step's, to be sent to
    /// the other ranks. 0 without a previous step; `None` if steps are not tuned.
    pub(crate) fn passes_over(&mut self) -> Option<f64> {
        let last = self.passes_over.replace(Instant::now());
        self.tuner.as_ref().map(|_| last.map_or(0.0, |last| last.elapsed().as_secs_f64()))
    }

    /// Takes the result of tuning that has not been reported yet.
    pub(crate) fn take_kept(&mut self) -> Option<Tuning> {
        self.kept.take()
    }
}
