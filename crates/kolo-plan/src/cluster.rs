//! A cluster as collectives see it: its ranks, its nodes and its links.

use kolo_schedule::tree::Contributions;
use kolo_schedule::{Link, Network, Rank, Topology};

use crate::cores::Cores;

/// Ranks on nodes, and the costs of their links.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Node of every rank.
    pub topology: Topology,
    /// Number of last ranks that are summation servers, which only add.
    pub servers: usize,
    /// Costs of messages within and between nodes, and of additions.
    pub network: Network,
    /// Seconds of a core that a rank spends per byte that it sends and receives between nodes.
    pub far_cpu: f64,
    /// True if ranks of a node can read each other's memory.
    pub shares_memory: bool,
    /// Cores that workers share; `None` if communication takes no time from computation.
    pub cores: Option<Cores>,
}

impl Cluster {
    /// Seconds from the start of a short message to its arrival over TCP in one data center.
    pub const ETHERNET_LATENCY: f64 = 3e-5;

    /// Creates nodes of `ranks_per_node` consecutive ranks; the last node has the remaining ranks. Each node
    /// has one link of `gigabits` Gbit/s in each direction, with the latency of TCP in a data center. Memory
    /// and additions cost as in [`Network::default`].
    pub fn over_ethernet(ranks: usize, ranks_per_node: usize, gigabits: f64) -> Self {
        let nodes: Vec<usize> = (0..ranks).map(|rank| rank / ranks_per_node.max(1)).collect();
        let far = Link::new(Self::ETHERNET_LATENCY, 8.0 / (gigabits * 1e9));
        Cluster {
            topology: Topology::of_names(&nodes),
            servers: 0,
            network: Network { far, ..Network::default() },
            far_cpu: 0.0,
            shares_memory: true,
            cores: None,
        }
    }

    /// Returns the number of ranks that compute.
    pub fn workers(&self) -> usize {
        self.topology.world() - self.servers
    }

    pub(crate) fn without_servers(&self) -> Self {
        if self.servers == 0 {
            return self.clone();
        }
        let node = |worker: usize| self.topology.node_of(Rank(worker));
        let nodes: Vec<usize> = (0..self.workers()).map(node).collect();
        Cluster { topology: Topology::of_names(&nodes), servers: 0, ..self.clone() }
    }

    /// Returns the contributions to a sum: one part per worker, none per server.
    pub(crate) fn contributions(&self) -> Contributions {
        let world = self.topology.world();
        if self.servers == 0 {
            return Contributions::one_each(world);
        }
        let is_server: Vec<bool> = (0..world).map(|rank| rank >= self.workers()).collect();
        let shares: Vec<usize> = is_server.iter().map(|server| usize::from(!server)).collect();
        Contributions::of_shares(&shares).with_servers(&is_server)
    }
}
