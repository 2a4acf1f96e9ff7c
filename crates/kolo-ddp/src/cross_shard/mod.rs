//! Sums across shards in the middle of their passes: where a layer needs sums over the whole global batch, as
//! batch normalisation does, no shard can go on before all have come to it.
//!
//! Between ranks an [`Exchange`] adds; within a rank its shards' passes are threads that meet at each sum
//! ([`TurnTaker`]). What is added, and in which order, does not depend on who has which shard, so the bits do
//! not either.

mod exchange;
mod pass;
mod turn_taker;

pub use self::exchange::Exchange;
pub use self::pass::CrossShardPass;
pub use self::turn_taker::{Runner, ShardHandle, SumRequest, TurnTaker};
