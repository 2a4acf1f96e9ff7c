//! Progress of a rank with divided state through the end of a step, and what it keeps for other ranks.

use kolo_reduction::state::StateCopy;
use kolo_step::{LastStep, LossScale};

/// Stage of the end of a step (see [`kolo_values::handover`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Sums are on their way.
    Summing,
    /// The sums of this rank's parts are here; those of other ranks' may not be.
    Ready,
    /// All ranks have their sums.
    Stepped,
}

/// A step that ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    /// Its result.
    pub(crate) done: LastStep,
    /// State of loss scaling before it.
    pub(crate) scale: LossScale,
    pub(crate) stage: Stage,
}

/// Progress of a rank, in a job whose state is divided and whose ranks may change.
#[derive(Default)]
pub(crate) struct Handover {
    /// The step that ends, until all of its updates are applied.
    pub(crate) ending: Option<Ending>,
    /// A step that failed when this rank had its sums. Whether the step counts is decided when the next group
    /// forms.
    pub(crate) ready: Option<Ending>,
    /// True if some values of other ranks' parts are older than its own.
    pub(crate) lacks_values: bool,
    /// State of parts after so many steps, and their values where these are divided, of which others may
    /// have the only other copy until all ranks have begun to train in this group.
    pub(crate) kept: Option<(u64, StateCopy)>,
    /// Fingerprint of the job's initial values, before they were divided.
    pub(crate) initial: Option<u64>,
    /// True if the next step is to fail on this rank when all ranks have their sums, or the completion of a
    /// step when all have completed it; in tests.
    pub(crate) fails_when_ready: bool,
}
