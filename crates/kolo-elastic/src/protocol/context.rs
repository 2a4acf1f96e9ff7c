//! The constants of a launcher.

use std::time::{Duration, Instant};

use super::worker_set::MembershipPolicy;
use crate::launcher_view::NodeLimits;

/// What a launcher is told at its start, and never changes.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// Tells this launcher from all others of its job.
    pub(crate) launcher_id: u64,
    /// Where this launcher runs, for messages to users of others.
    pub(crate) place: String,
    pub(crate) policy: MembershipPolicy,
    pub(crate) limits: NodeLimits,
    /// Workers that are started on this node when the job begins.
    pub(crate) deferred_workers: usize,
    /// How long a job of several nodes may take to begin, from this launcher's start.
    pub(crate) start_timeout: Duration,
    /// When that time is over.
    pub(crate) begins_by: Instant,
    /// Users give nodes their ranks, so node 0 begins the job and may be started again.
    pub(crate) ranks_given: bool,
}
