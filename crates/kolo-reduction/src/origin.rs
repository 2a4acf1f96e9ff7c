//! Origin of a value in a step that is not finite, for error messages.

use std::fmt;

use kolo_comm::Rank;

/// Origin of a gradient that is not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In one shard's own pass.
    Shard {
        /// Number of the shard in the step.
        shard: usize,
        /// Rank of the shard.
        rank: Rank,
    },
    /// In the reduction over all shards, whose gradients are finite.
    Sum,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Shard { shard, rank } => write!(f, "in shard {shard} ({rank})"),
            Origin::Sum => write!(f, "over all shards, in each of which it is finite"),
        }
    }
}
