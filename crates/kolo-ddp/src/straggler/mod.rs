//! Who holds the others up, why, and what becomes of it.
//!
//! A step takes the same time on all ranks, because they wait for one another; so wall times say nothing.
//! Every rank measures on its own clock what it does itself (`step_timing`): computing, waiting for data,
//! waiting for others. Every [`EVERY`] steps the ranks exchange the medians together with the agreement, for
//! which they meet anyway, and by how much the means are above them, which shows stalls in bursts (`stalls`).
//! From the same table all of them then draw the same conclusions: who is slow and by what ([`diagnose`]),
//! and which shards should move ([`rebalance`]).

mod detector;
mod diagnose;
mod hysteresis;
mod median;
mod observer;
mod policy;
mod rebalance;
mod stalls;
mod step_timing;

pub use diagnose::{Cause, Straggler, Times, diagnose};
pub(crate) use observer::{Compared, StragglerObserver};
pub use policy::Policy;
pub use rebalance::{Rebalance, rebalance};
pub use step_timing::EVERY;
