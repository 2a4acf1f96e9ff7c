//! What a replica has for tuning.

use std::time::Instant;

use crate::tune::{Tuner, Tuning};

/// The tuner of a replica's steps, and what it has been told and has come to.
#[derive(Default)]
pub(crate) struct TuningObserver {
    /// `None` where steps are not tuned.
    pub(super) tuner: Option<Tuner>,
    /// Whether every step is run by another setting, whoever watches.
    pub(super) is_hasty: bool,
    /// When the passes of the last step were over.
    pub(super) passes_over: Option<Instant>,
    /// What the links of the ranks were last measured to carry.
    pub(super) link_rates: Option<Vec<f64>>,
    /// What tuning has come to, not yet reported.
    pub(super) kept: Option<Tuning>,
}

impl TuningObserver {
    /// The passes of a step are over: the seconds since those of the step before were, to be told to the
    /// others; 0 where there was none; `None` where steps are not tuned.
    pub(crate) fn passes_over(&mut self) -> Option<f64> {
        let last = self.passes_over.replace(Instant::now());
        self.tuner.as_ref().map(|_| last.map_or(0.0, |last| last.elapsed().as_secs_f64()))
    }

    /// What tuning has come to since it was last asked.
    pub(crate) fn take_kept(&mut self) -> Option<Tuning> {
        self.kept.take()
    }
}
