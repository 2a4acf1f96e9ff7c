//! What the last whole step came to. It is part of the state that ranks hand on: whoever has not seen a step's end, because
//! that failed here or because it came later, knows of it nevertheless.

use super::Replica;

/// A step all of whose updates are in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LastStep {
    /// Its number, from 0.
    pub step: u64,
    /// Mean loss over the global batch, in the bits of [`StepReport::loss`](super::StepReport::loss).
    pub loss: f64,
    /// What the mean is over: samples of the global batch.
    pub count: f64,
}

impl Replica {
    /// The last step all of whose updates this rank has, also if [`Replica::step`] failed after it was complete, or if this rank
    /// has it from another one ([`Replica::regroup`]). While updates of a step are still to be made it is the one before. `None`
    /// before the first step and right after a checkpoint has been loaded.
    pub fn last_step(&self) -> Option<LastStep> {
        self.last
    }
}
