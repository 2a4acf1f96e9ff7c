//! What a job does about a slow rank.

/// What becomes of a rank that holds the others up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Rank 0 logs who it is and why, once a finding.
    #[default]
    Warn,
    /// Besides, whole shards move to the others, and back when it recovers.
    Rebalance,
    /// The finding is for the caller to act on: it is in [`StepReport::straggler`](crate::StepReport::straggler) on all ranks
    /// alike, and [`Replica::leave_out`](crate::Replica::leave_out) goes on without that rank, or where the job has no members
    /// [`Replica::regroup`](crate::Replica::regroup). Needs [`Config::elastic`](crate::Config::elastic).
    Drop,
}

impl Policy {
    /// All of them, as named on a command line.
    pub const ALL: [(&'static str, Policy); 3] =
        [("warn", Policy::Warn), ("rebalance", Policy::Rebalance), ("drop", Policy::Drop)];
}
