//! Shards in step: where a layer needs sums over the whole global batch, as batch normalisation does, no shard can go on before
//! all have come to it.
//!
//! Between ranks an [`Exchange`] adds; within a rank its shards' passes are threads that meet at each sum ([`Relay`]). What is
//! added, and in which order, does not depend on who has which shard, so the bits do not either.

mod exchange;
mod relay;

pub use self::exchange::Exchange;
pub use self::relay::{Ask, Place, Relay, Runner};
