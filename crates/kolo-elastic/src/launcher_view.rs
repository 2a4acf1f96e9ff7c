//! A launcher's copy of the list of all launchers of its job, with the limits on joining and the order in
//! which they lead.
//!
//! The leader keeps the view, its followers copy it, and every launcher publishes its copy (see
//! `launcher_protocol`). These copies alone determine which launcher leads after a lost leader: see
//! `succession`.

use std::net::SocketAddr;

use kolo_schedule::words::counted;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeLimits {
    /// Number of launchers that must have joined before the job begins.
    pub(crate) min: usize,
    pub(crate) max: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct LauncherInfo {
    /// Unique id of the launcher, which also differs from those of earlier launchers of its node.
    pub(crate) id: u64,
    pub(crate) node_rank: usize,
    /// Address at which others reach the launcher's store.
    pub(crate) address: SocketAddr,
}

/// The live launchers of a job, in the order in which they have joined. The first leads.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct LauncherView {
    /// Place at which launchers find the job, as all of them name it.
    pub(crate) job_name: String,
    /// Id of the launcher that began the job. It differs from those of other jobs at the same place.
    pub(crate) job_id: u64,
    /// The last generation that the arbiter granted to the leader; 0 before the first. If two launchers
    /// lead, the one with the higher number is right.
    pub(crate) generation: u64,
    /// The arbiter that grants generations, as written on the command line.
    pub(crate) arbiter: String,
    /// Number of nodes with which the job began; `None` before that.
    pub(crate) initial_nodes: Option<usize>,
    /// True if some launcher's work is done. A later launcher wants another job at the same place.
    pub(crate) work_done: bool,
    pub(crate) launchers: Vec<LauncherInfo>,
}

impl LauncherView {
    pub(crate) fn new(job_name: &str, arbiter: String, first: LauncherInfo) -> LauncherView {
        LauncherView {
            job_name: job_name.into(),
            job_id: first.id,
            generation: 0,
            arbiter,
            initial_nodes: None,
            work_done: false,
            launchers: vec![first],
        }
    }

    pub(crate) fn leader(&self) -> Option<&LauncherInfo> {
        self.launchers.first()
    }

    /// Adds a launcher with the node rank it asks for, or else the lowest free one. Returns its node rank.
    /// The error completes a sentence that begins with the job.
    pub(crate) fn admit(
        &mut self,
        id: u64,
        address: SocketAddr,
        wish: Option<usize>,
        limits: NodeLimits,
    ) -> Result<usize, String> {
        if let Some(known) = self.launchers.iter().find(|launcher| launcher.id == id) {
            return Ok(known.node_rank);
        }
        let taken = |rank: usize| self.launchers.iter().find(|launcher| launcher.node_rank == rank);
        // A full job says it, too: that two launchers have one number is the reason.
        if let Some(LauncherInfo { node_rank, address, .. }) = wish.and_then(taken) {
            return Err(format!(
                "has a node {node_rank} already, at {address}; give each its own --node-rank"
            ));
        }
        let count = self.launchers.len();
        if count >= limits.max {
            return Err(format!(
                "has {}, which is all that it may have (--nnodes)",
                counted(limits.max, "launcher")
            ));
        }
        let lowest_free = || (0..count).find(|rank| taken(*rank).is_none()).unwrap_or(count);
        let node_rank = wish.unwrap_or_else(lowest_free);
        self.launchers.push(LauncherInfo { id, node_rank, address });
        Ok(node_rank)
    }

    /// Removes a launcher that has gone. Returns false if the view did not contain it.
    pub(crate) fn remove(&mut self, id: u64) -> bool {
        let before = self.launchers.len();
        self.launchers.retain(|launcher| launcher.id != id);
        self.launchers.len() < before
    }

    /// Returns true if the job begins now, with the launchers that have joined. A job begins once.
    pub(crate) fn begin(&mut self, limits: NodeLimits) -> bool {
        let begins = self.initial_nodes.is_none() && self.launchers.len() >= limits.min;
        if begins {
            self.initial_nodes = Some(self.launchers.len());
        }
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: NodeLimits = NodeLimits { min: 2, max: 3 };

    fn at(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn view(count: usize) -> LauncherView {
        let mut view = LauncherView::new(
            "job",
            "majority".into(),
            LauncherInfo { id: 10, node_rank: 0, address: at(1) },
        );
        for n in 1..count {
            assert_eq!(view.admit(10 + n as u64, at(1 + n as u16), None, LIMITS), Ok(n));
        }
        view
    }

    #[test]
    fn a_job_begins_once_when_enough_have_joined() {
        let mut view = view(1);
        assert!(!view.begin(LIMITS));
        view.admit(11, at(2), None, LIMITS).unwrap();
        assert!(view.begin(LIMITS) && !view.begin(LIMITS));
        view.admit(12, at(3), None, LIMITS).unwrap();
        assert_eq!(view.initial_nodes, Some(2), "whoever comes later has not begun it");
    }

    #[test]
    fn launchers_join_once_and_up_to_the_limit() {
        let mut view = view(2);
        assert_eq!(view.admit(11, at(2), None, LIMITS), Ok(1), "it asks again");
        let twice = view.admit(12, at(3), Some(1), LIMITS).unwrap_err();
        assert!(twice.contains("node 1") && twice.contains("127.0.0.1:2"), "{twice}");
        assert_eq!(view.admit(12, at(3), Some(2), LIMITS), Ok(2));
        let many = view.admit(13, at(4), None, LIMITS).unwrap_err();
        assert!(many.contains("--nnodes"), "{many}");
        let twice = view.admit(13, at(4), Some(1), LIMITS).unwrap_err();
        assert_eq!(
            twice, "has a node 1 already, at 127.0.0.1:2; give each its own --node-rank",
            "though it is full"
        );
    }

    #[test]
    fn a_free_node_rank_is_reused() {
        let mut view = view(3);
        assert!(view.remove(11) && !view.remove(11));
        assert_eq!(view.admit(20, at(9), None, LIMITS), Ok(1));
        let order: Vec<u64> = view.launchers.iter().map(|launcher| launcher.id).collect();
        assert_eq!(order, [10, 12, 20], "but it leads last");
    }
}
