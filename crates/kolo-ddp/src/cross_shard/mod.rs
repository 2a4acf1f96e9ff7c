//! Sums across shards in the middle of their passes. If a layer needs sums over the whole global batch, as
//! batch normalization does, no shard can continue before all have reached it.
//!
//! Between ranks an [`Exchange`] adds; within a rank its shards' passes are threads that meet at each sum
//! ([`TurnTaker`]). Neither the summands nor their order depend on the distribution of shards, so the bits
//! do not either.

mod exchange;
mod pass;
mod turn_taker;

pub use self::exchange::Exchange;
pub use self::pass::CrossShardPass;
pub use self::turn_taker::{Runner, ShardHandle, SumRequest, TurnTaker};
