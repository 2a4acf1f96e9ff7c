//! Steps of a scaled loss with a reduction that does more than sum. It sees gradients without their scale,
//! so that its state has a constant unit, and a step that overflows leaves that state as it was.
//!
//! The result of such a reduction may hide an overflow, so the contributions are checked
//! ([`finiteness`](super::finiteness)).

use super::Step;
use super::bucket_state::BucketState;
use crate::error::Error;

/// Number of a step, and scale of its losses; the same on all ranks.
#[derive(Clone, Copy)]
pub(crate) struct StepNumber {
    /// Steps of the job before it.
    pub(crate) number: u64,
    /// Those of them that were not skipped. Reductions count only these: a skipped step leaves no trace.
    pub(crate) updates: u64,
    /// Divisor of gradients before the reduction sees them; the reduction's state is copied then, so that
    /// the step can be skipped. `None`: gradients stay as they are.
    pub(crate) unscale: Option<f32>,
    /// True if the loss may overflow.
    pub(crate) may_overflow: bool,
}

/// Divides contributions by the scale of their step.
#[derive(Default)]
pub(super) struct Unscaling {
    /// `None` if they stay as they are.
    scale: Option<f32>,
    /// Buffer for one contribution after another.
    unscaled: Vec<f32>,
}

impl Unscaling {
    /// Returns a contribution to a parameter without its scale, or `None` if it stays as it is. The buffer
    /// goes to [`Unscaling::give_back`] afterwards.
    pub(super) fn take(&mut self, gradient: &[f32]) -> Option<Vec<f32>> {
        let scale = self.scale?;
        let mut unscaled = std::mem::take(&mut self.unscaled);
        unscaled.clear();
        unscaled.extend(gradient.iter().map(|g| g / scale));
        Some(unscaled)
    }

    /// Returns the buffer of [`Unscaling::take`] for reuse.
    pub(super) fn give_back(&mut self, unscaled: Vec<f32>) {
        self.unscaled = unscaled;
    }
}

impl Step {
    /// Begins a step, before this rank's first pass or, on a rank without shards, in place of it.
    pub(super) fn begin(&mut self, step: StepNumber) {
        self.unscaling.scale = step.unscale;
        if step.unscale.is_some() {
            self.buckets.states.iter_mut().for_each(BucketState::save_state);
        }
    }

    /// Skips the step: waits for all buckets, and restores the state of their reductions from before it.
    /// Belongs to `Reducing`.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
    pub(crate) fn take_back(&mut self) -> Result<(), Error> {
        for bucket in self.order() {
            self.wait(bucket)?;
            if self.unscaling.scale.is_some() {
                self.buckets.states[bucket].restore_state();
            }
        }
        Ok(())
    }
}
