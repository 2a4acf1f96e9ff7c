//! What a bucket's reduction keeps from step to step, as it was before the step that runs: a step that is
//! skipped leaves it so. Costs a copy of it in each step in which losses are scaled.

use crate::reduction::Reduction;

/// A copy for one bucket.
#[derive(Default)]
pub(super) struct StateBefore {
    /// For each name of what is kept for each shard, by this rank's shards.
    shards: Vec<Vec<Vec<f32>>>,
    /// For each name of what is the same on all ranks.
    common: Vec<Vec<f32>>,
}

impl StateBefore {
    /// A step begins.
    pub(super) fn remember(&mut self, reduction: &mut dyn Reduction) {
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

    /// The step is skipped.
    pub(super) fn restore(&self, reduction: &mut dyn Reduction) {
        for (now, before) in reduction.shard_state().into_iter().zip(&self.shards) {
            now.clone_from_slice(before);
        }
        for (now, before) in reduction.common_state().into_iter().zip(&self.common) {
            now.copy_from_slice(before);
        }
    }
}
