//! The loss of one shard, for error messages.

use std::fmt;

use kolo_comm::Rank;
use serde::{Deserialize, Serialize};

/// The loss of one shard, summed over its samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShardLoss {
    /// Rank of the shard.
    pub rank: Rank,
    /// Its number in the step.
    pub shard: usize,
    /// The loss.
    pub loss: f64,
}

impl fmt::Display for ShardLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in shard {} ({})", self.loss, self.shard, self.rank)
    }
}
