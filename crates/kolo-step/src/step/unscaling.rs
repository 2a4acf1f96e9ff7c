//! Steps of a scaled loss with a reduction that does more than sum. It sees gradients without their scale,
//! so that its state has a constant unit, and a step that overflows leaves that state as it was.
//!
//! The result of such a reduction may hide an overflow, so the contributions are checked
//! ([`finiteness`](super::finiteness)).

/// Number of a step, and scale of its losses; the same on all ranks.
#[derive(Clone, Copy, Debug)]
pub struct StepNumber {
    /// Steps of the job before it.
    pub number: u64,
    /// Those of them that were not skipped. Reductions count only these: a skipped step leaves no trace.
    pub updates: u64,
    /// Divisor of gradients before the reduction sees them; the reduction's state is copied then, so that
    /// the step can be skipped. `None`: gradients stay as they are.
    pub unscale: Option<f32>,
    /// True if the loss may overflow.
    pub may_overflow: bool,
    /// True if all ranks look at all of the reduced gradient, even where others step it.
    pub all_read: bool,
}

/// Divides contributions by the scale of their step.
#[derive(Default)]
pub(super) struct Unscaling {
    /// `None` if they stay as they are.
    pub(super) scale: Option<f32>,
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
