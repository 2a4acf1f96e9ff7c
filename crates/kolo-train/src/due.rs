//! Checkpoints that are due after a step.

use kolo_metrics::Progress;
use serde::{Deserialize, Serialize};

/// Origin of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Demand {
    /// The calendar: a newer checkpoint is as good, if the disk is too slow for both.
    Routine,
    /// A callback ([`Flow::Checkpoint`](crate::Flow)): this one is written.
    Asked,
}

/// Checkpoints that are due after a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Due {
    /// Number of steps done.
    pub(crate) step: u64,
    /// True if the model is the best one so far.
    pub(crate) is_best: bool,
    /// Origin of the checkpoint among the last few, if one is due.
    pub(crate) last: Option<Demand>,
    /// True if the run ends here.
    pub(crate) at_end: bool,
}

impl Due {
    /// Returns the checkpoint among the last few that is due after a step.
    pub(crate) fn last(progress: &Progress, demand: Demand) -> Self {
        Due { step: progress.step(), is_best: false, last: Some(demand), at_end: progress.is_over() }
    }
}
