//! Who holds the others up, why, and what becomes of it.
//!
//! A step takes the same time on all ranks, because they wait for one another; so wall times say nothing. Every rank measures
//! on its own clock what it does itself (`clock`): computing, waiting for data, waiting for others. Every [`EVERY`] steps the
//! ranks exchange the medians together with the agreement, for which they meet anyway. From the same table all of them then
//! draw the same conclusions: who is slow and by what ([`diagnose`]), and which shards should move ([`shed`]).

mod clock;
mod diagnose;
mod scout;
mod shed;

pub(crate) use clock::Clock;
pub use diagnose::{Cause, Straggler, Times, diagnose};
pub(crate) use scout::Scout;
pub use shed::{Shed, shed};

/// Steps between two looks at all ranks' times, which are the medians of these steps.
pub const EVERY: u64 = 20;

/// Seconds a step below which a difference is no matter.
const LEAST: f64 = 1e-3;

/// What becomes of a rank that holds the others up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Rank 0 logs who it is and why, once a finding.
    #[default]
    Warn,
    /// Besides, whole shards move to the others, and back when it recovers.
    Shed,
    /// The finding is for the caller to act on: it is in [`StepReport::straggler`](crate::StepReport::straggler) on all ranks
    /// alike, and [`Replica::leave_out`](crate::Replica::leave_out) goes on without that rank, or where the job has no members
    /// [`Replica::regroup`](crate::Replica::regroup). Needs [`Config::elastic`](crate::Config::elastic).
    Drop,
}

impl Policy {
    /// All of them, as named on a command line.
    pub const ALL: [(&'static str, Policy); 3] =
        [("warn", Policy::Warn), ("shed", Policy::Shed), ("drop", Policy::Drop)];
}

/// The middle one; of an even number the upper one of the two. Nothing: 0.
fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}
