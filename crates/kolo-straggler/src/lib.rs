//! Stragglers: ranks that delay the others, the cause, and the reaction.
//!
//! A step takes the same time on all ranks, because they wait for one another; so wall times do not show the
//! cause. Every rank measures the work of its own training thread (`step_timing`): computing, waiting for
//! data, waiting for others. Every [`EVERY`] steps the ranks exchange the medians with the agreement, for
//! which they meet anyway, and the differences between means and medians, which show stalls in bursts
//! (`stalls`). From the same table all of them then draw the same conclusions: which rank is slow and why
//! ([`diagnose`]), and which shards should move ([`rebalance`]).

mod detector;
mod diagnose;
mod hysteresis;
mod median;
mod policy;
mod rebalance;
mod stalls;
mod step_timing;

pub use detector::{Findings, StragglerDetector};
pub use diagnose::{Cause, Straggler, Times, diagnose};
pub use policy::Policy;
pub use rebalance::{Rebalance, rebalance};
pub use step_timing::{EVERY, StepTiming};
