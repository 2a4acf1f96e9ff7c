//! Reaction of a job to a slow rank.

/// Reaction to a rank that delays the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Rank 0 logs the rank and the cause, once a finding.
    #[default]
    Warn,
    /// In addition, whole shards move to the other ranks, and back when it recovers.
    Rebalance,
    /// The caller acts on the finding: it is in `StepReport::straggler` on all ranks, and
    /// `Replica::leave_out` continues without that rank, or in a job without members `Replica::regroup`.
    /// Needs `Config::elastic`.
    Drop,
}

impl Policy {
    /// All policies, with their names on a command line.
    pub const ALL: [(&'static str, Policy); 3] =
        [("warn", Policy::Warn), ("rebalance", Policy::Rebalance), ("drop", Policy::Drop)];
}
