//! Constants of a launcher.

use std::time::{Duration, Instant};

use super::worker_set::MembershipPolicy;
use crate::launcher_view::NodeLimits;

/// Constants that a launcher receives at its start.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// Id of this launcher, unique within its job.
    pub(crate) launcher_id: u64,
    /// Host and process of this launcher, for messages to users on other nodes.
    pub(crate) place: String,
    pub(crate) policy: MembershipPolicy,
    pub(crate) limits: NodeLimits,
    /// Number of workers that this node starts when the job begins.
    pub(crate) deferred_workers: usize,
    /// Time that a job of several nodes may take to begin, from this launcher's start.
    pub(crate) start_timeout: Duration,
    /// End of that time.
    pub(crate) begins_by: Instant,
    /// True if users number the nodes: node 0 then begins the job, and may be restarted.
    pub(crate) ranks_given: bool,
}
