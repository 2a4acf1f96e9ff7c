//! What a launcher of a job of several nodes is told about the job.

use std::time::Duration;

use crate::arbiter::Arbiter;

/// The nodes of a job, and this one among them. Each node has one launcher.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Hosts and ports by which launchers find each other, the same on all nodes; at least one. The job
    /// begins at the first.
    pub masters: Vec<(String, u16)>,
    /// This node's rank, from 0; node 0 begins the job. `None`: nodes are numbered as they join, and whoever
    /// runs on the host of the first master begins the job.
    pub node_rank: Option<usize>,
    /// The job begins when so many nodes have joined.
    pub min_nodes: usize,
    /// The job has at most so many nodes at a time.
    pub max_nodes: usize,
    /// Workers that this node starts: at once if its rank is given, else when the job has begun.
    pub local_workers: usize,
    /// The job may take so long to begin, from this launcher's start: until its leader is found and enough
    /// launchers have joined.
    pub start_timeout: Duration,
    /// By what launchers agree which of them goes on when they have lost each other; the same on all nodes.
    pub arbiter: Arbiter,
}

impl NodeConfig {
    /// Workers that this node starts only when the job has begun, because their names need its rank.
    pub(crate) fn deferred_workers(&self) -> usize {
        if self.node_rank.is_none() { self.local_workers } else { 0 }
    }

    /// The places at which launchers look for the job, for messages to the user.
    pub(crate) fn masters_text(&self) -> String {
        let masters: Vec<String> = self.masters.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        masters.join(", ")
    }
}
