//! Collectives as data: what each rank sends, adds and receives, in which order, and what that costs.
//!
//! A [`Schedule`] is a pure function of the operation, the rank, the group and the lengths ([`Problem`]);
//! [`ALGORITHMS`] lists the ways to build one. kolo-comm executes the same value that this crate
//! [simulates](simulate()) to count its [cost](Cost) and that its tests prove correct. Sums are added in the
//! order of a [`tree`] over the shards of a batch. It does not depend on the shards' ranks.
//!
//! ```
//! use kolo_schedule::tree::Contributions;
//! use kolo_schedule::{DType, Network, Operation, Problem, Rank, Topology, choose};
//!
//! // 8 ranks of one node add 1000 numbers each; this is the schedule of rank 3.
//! let (contributions, topology) = (Contributions::one_each(8), Topology::single(8));
//! let problem = Problem {
//!     operation: &Operation::AllReduce,
//!     rank: Rank(3),
//!     len: 1000,
//!     contributions: &contributions,
//!     topology: &topology,
//!     segment: 100_000,
//! };
//! let choice = choose(&problem, DType::F32, &Network::default());
//! let schedule = (choice.algorithm.build)(&problem)?;
//! println!("{}: {} steps ({})", choice.algorithm.name, schedule.steps.len(), choice.reason());
//! # Ok::<(), &str>(())
//! ```
//!
//! This crate handles no threads, sockets or values. It depends on no other crate of Kolo.

mod algorithm;
mod algorithms;
mod choice;
mod cost;
mod dtype;
pub mod hash;
mod lower_bound;
mod messages;
mod network;
mod opaque_debug;
mod operation;
mod ownership_by_rate;
mod problem;
#[cfg(test)]
mod proof;
mod rank;
mod readers;
mod reduce_op;
mod sample;
mod schedule;
pub mod seconds;
mod simulate;
mod topology;
pub mod tree;
mod wire_cost;
pub mod words;

pub use algorithm::Algorithm;
pub use algorithms::ALGORITHMS;
pub use choice::{Choice, choose};
pub use cost::{Cost, Traffic};
pub use dtype::DType;
pub use network::{Curve, Link, Network};
pub use operation::{BusShare, Chunks, Message, Operation, OperationKind, Properties};
pub use ownership_by_rate::{ownership_by_rate, slowest_share};
pub use problem::Problem;
pub use rank::Rank;
pub use readers::{ReadBlock, Readers};
pub use reduce_op::Op;
pub use schedule::{MAX_UNTAKEN, Range, Schedule, Source, Step};
pub use simulate::{LinkTimes, Times, simulate};
pub use topology::Topology;
pub use wire_cost::{Travel, WireCost};
