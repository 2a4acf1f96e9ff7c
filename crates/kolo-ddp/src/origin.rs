//! Where something in a step comes from that is not finite, for those who have to name it.

use std::fmt;

use kolo_comm::Rank;

/// Where a gradient has stopped to be finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In one shard's own pass.
    Shard {
        /// Number of the shard in the step.
        shard: usize,
        /// Whose shard it is.
        rank: Rank,
    },
    /// In the reduction over all shards, each of which has a finite one.
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
