//! Settings of a launcher of a job of several nodes.

use std::time::Duration;

use crate::arbiter::Arbiter;

/// The nodes of a job, and the place of this node among them. Each node has one launcher.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Hosts and ports by which launchers find each other, at least one, the same on all nodes. The job
    /// begins at the first.
    pub masters: Vec<(String, u16)>,
    /// This node's rank, from 0; node 0 begins the job. `None`: nodes are numbered as they join, and the
    /// launcher on the host of the first master begins the job.
    pub node_rank: Option<usize>,
    /// Number of nodes that must have joined before the job begins.
    pub min_nodes: usize,
    /// Maximum number of nodes at a time.
    pub max_nodes: usize,
    /// Number of workers that this node starts: at once if its rank is given, else when the job has begun.
    pub local_workers: usize,
    /// Time, from this launcher's start, within which its leader is found and enough launchers have joined.
    pub start_timeout: Duration,
    /// The arbiter that decides which launchers go on when they have lost each other; the same on all nodes.
    pub arbiter: Arbiter,
}

impl NodeConfig {
    /// Number of workers that this node starts only when the job has begun: their names need its rank.
    pub(crate) fn deferred_workers(&self) -> usize {
        if self.node_rank.is_none() { self.local_workers } else { 0 }
    }

    /// Hosts and ports at which launchers look for the job, for messages to the user.
    pub(crate) fn masters_text(&self) -> String {
        let masters: Vec<String> = self.masters.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        masters.join(", ")
    }
}
