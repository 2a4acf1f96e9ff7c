//! Steps of a scaled loss whose reduction does not simply sum: it sees gradients without their scale, so what
//! it keeps from step to step has no unit that changes, and a step that overflows leaves that as it was.
//!
//! What such a reduction says of an overflow need not show it; it is looked for in what comes in
//! ([`finiteness`](super::finiteness)).

use super::Step;
use super::bucket_state::BucketState;
use crate::error::Error;

/// Which step it is, and how its losses are scaled; the same on all ranks.
#[derive(Clone, Copy)]
pub(crate) struct StepNumber {
    /// Steps of the job before it.
    pub(crate) number: u64,
    /// Those of them that were not skipped, which are all that reductions know of: a step that is skipped
    /// has never been.
    pub(crate) updates: u64,
    /// What gradients are divided by before the reduction sees them; then a copy is made of what it keeps, so
    /// that the step can be skipped. `None`: it sees them as they are.
    pub(crate) unscale: Option<f32>,
    /// Whether the loss may overflow.
    pub(crate) may_overflow: bool,
}

/// What divides contributions by the scale of their step.
#[derive(Default)]
pub(super) struct Unscaling {
    /// `None` where they stay as they are.
    scale: Option<f32>,
    /// Takes one contribution after another.
    unscaled: Vec<f32>,
}

impl Unscaling {
    /// A contribution to a parameter without its scale, if that is to be taken from it; to be given back
    /// afterwards.
    pub(super) fn take(&mut self, gradient: &[f32]) -> Option<Vec<f32>> {
        let scale = self.scale?;
        let mut unscaled = std::mem::take(&mut self.unscaled);
        unscaled.clear();
        unscaled.extend(gradient.iter().map(|g| g / scale));
        Some(unscaled)
    }

    /// The memory is of use again.
    pub(super) fn give_back(&mut self, unscaled: Vec<f32>) {
        self.unscaled = unscaled;
    }
}

impl Step {
    /// Before this rank's first pass of a step, or in place of it where the rank has no shards.
    pub(super) fn begin(&mut self, step: StepNumber) {
        self.unscaling.scale = step.unscale;
        if step.unscale.is_some() {
            self.buckets.states.iter_mut().for_each(BucketState::remember);
        }
    }

    /// In `Reducing`: the step is to be skipped. Waits for all buckets; what their reductions keep is as it
    /// was before.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
    pub(crate) fn take_back(&mut self) -> Result<(), Error> {
        for bucket in self.order() {
            self.wait(bucket)?;
            if self.unscaling.scale.is_some() {
                self.buckets.states[bucket].restore();
            }
        }
        Ok(())
    }
}
