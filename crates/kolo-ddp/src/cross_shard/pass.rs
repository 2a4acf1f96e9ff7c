//! A forward pass's view of a step whose shards go through the model together.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::turn_taker::ShardHandle;

/// One shard of a step whose shards go through the model together, as its forward pass sees it.
#[derive(Debug)]
pub struct CrossShardPass {
    shard: usize,
    handle: ShardHandle,
    layers: AtomicUsize,
}

impl CrossShardPass {
    /// The pass of the shard with this number in the step, by its handle.
    pub fn new(shard: usize, handle: &ShardHandle) -> Self {
        CrossShardPass { shard, handle: handle.clone(), layers: AtomicUsize::new(0) }
    }

    /// Number of the shard in the step.
    pub fn shard(&self) -> usize {
        self.shard
    }

    /// Handle by which a layer requests sums over all shards.
    pub fn handle(&self) -> &ShardHandle {
        &self.handle
    }

    /// The number of the next layer that requests sums, from 0; the same for every shard, because all take
    /// the same way through the model.
    pub fn next_layer(&self) -> usize {
        self.layers.fetch_add(1, Ordering::Relaxed)
    }
}
