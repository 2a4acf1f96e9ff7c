//! Copy of a bucket reduction's state from before the current step, which a skipped step restores. Costs a
//! copy in each step with scaled losses.

use kolo_reduction::reduction::Reduction;

/// The copy for one bucket.
#[derive(Default)]
pub(super) struct Rollback {
    /// For each name of the state by shard: values of each of this rank's shards.
    shards: Vec<Vec<Vec<f32>>>,
    /// For each name of the state that is the same on all ranks.
    common: Vec<Vec<f32>>,
}

impl Rollback {
    /// Copies the reduction's state at the beginning of a step.
    pub(super) fn save(&mut self, reduction: &mut dyn Reduction) {
        let now = reduction.shard_state();
        self.shards.resize_with(now.len(), Vec::new);
        for (before, now) in self.shards.iter_mut().zip(now) {
            before.resize(now.len(), Vec::new());
            before.clone_from_slice(now);
        }
        let now = reduction.common_state();
        self.common.resize_with(now.len(), Vec::new);
        for (before, now) in self.common.iter_mut().zip(now) {
            before.resize(now.len(), 0.0);
            before.copy_from_slice(now);
        }
    }

    /// Restores the reduction's state in a skipped step.
    pub(super) fn restore(&self, reduction: &mut dyn Reduction) {
        for (now, before) in reduction.shard_state().into_iter().zip(&self.shards) {
            now.clone_from_slice(before);
        }
        for (now, before) in reduction.common_state().into_iter().zip(&self.common) {
            now.copy_from_slice(before);
        }
    }
}
