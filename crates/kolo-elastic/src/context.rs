//! What a coordinator has whether it leads or follows.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use kolo_rendezvous::hash::{fnv1a, splitmix64};
use kolo_rendezvous::secure::Access;

use crate::arbiter::Arbiter;
use crate::discovery::Discovery;
use crate::launcher_view::NodeLimits;
use crate::worker_set::MembershipPolicy;

/// What a coordinator is told at its start, and never changes.
pub(crate) struct Context {
    /// Tells this launcher from all others of its job.
    pub(crate) launcher_id: u64,
    /// Where this launcher runs, for messages to users of others.
    pub(crate) place: String,
    /// By what it may lead.
    pub(crate) arbiter: Arbiter,
    pub(crate) policy: MembershipPolicy,
    pub(crate) access: Access,
    pub(crate) limits: NodeLimits,
    /// Workers that are started on this node when the job begins.
    pub(crate) deferred_workers: usize,
    /// How long a job of several nodes may take to begin, from this launcher's start.
    pub(crate) start_timeout: Duration,
    /// When that time is over.
    pub(crate) begins_by: Instant,
    /// How this launcher finds the others; `None` for a job of one node.
    pub(crate) discovery: Option<Arc<Discovery>>,
}

/// Where this process runs, in words.
pub(crate) fn new_place() -> String {
    let host =
        std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_else(|_| "an unknown host".into());
    format!("{} (process {})", host.trim(), std::process::id())
}

/// An id that nobody else has, on any host and after any restart: a hash of boot, process and time.
pub(crate) fn unique_id() -> u64 {
    let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let thread = std::thread::current().id();
    let text = format!("{boot} {} {thread:?} {}", std::process::id(), since_1970.as_nanos());
    splitmix64(fnv1a(text.as_bytes()))
}
