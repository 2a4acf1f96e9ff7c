//! The list of what a rank holds, and the operation that moves state from ranks that have it to ranks that
//! want it.
//!
//! Everything that keeps arrays from step to step (weights with their optimizer, reductions, ways to
//! synchronize) lists them as [`StatePart`]s, in a method `visit_state`. Checkpoints, workers that join,
//! backups, restarts and shards that move use that list and no other.

mod copy;
mod keepers;
mod newest;
mod part;
mod redistribute;
mod transfer;

pub use self::copy::StateCopy;
pub use self::keepers::kept;
pub use self::newest::{Held, newest};
pub use self::part::{StateKind, StateName, StatePart, Visit};
pub use self::redistribute::{Holdings, Transfer, redistribute, senders};
pub use self::transfer::transfer;
