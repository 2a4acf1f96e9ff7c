//! Collectives as data: what each rank sends, adds and receives, in which order, and what that costs.
//!
//! A [`Schedule`] is a pure function of the operation, the rank, the group and the lengths ([`Problem`]); [`ALGORITHMS`] lists
//! the ways to build one. The same value is executed (kolo-comm), simulated (kolo-plan) and proved correct (the tests of
//! this crate), so what holds for one holds for all. Sums are added in the order of a [`tree`] over the shards of a batch,
//! which does not depend on who holds them.
//!
//! This crate never sees a thread, a socket or a number to be added. Nothing of Kolo stands below it; kolo-rendezvous and
//! kolo-comm stand above.

mod algorithm;
mod algorithms;
mod choice;
mod cost;
mod dtype;
mod op;
mod operation;
#[cfg(test)]
mod proof;
mod rank;
mod schedule;
mod topology;
pub mod tree;

pub use algorithm::{Algorithm, Problem};
pub use algorithms::ALGORITHMS;
pub use choice::{Choice, choose};
pub use cost::{Cost, Curve, Link, Network, Traffic};
pub use dtype::DType;
pub use op::Op;
pub use operation::{Chunks, Message, Operation};
pub use rank::Rank;
pub use schedule::{MAX_UNTAKEN, Range, Schedule, Source, Step};
pub use topology::Topology;
