//! A cluster as far as collectives are concerned: its ranks, its nodes, and what lies between them.

use kolo_schedule::tree::Contributions;
use kolo_schedule::{Cost, Link, Network, Rank, Topology, Traffic};

use crate::cores::Cores;

/// Ranks on nodes, and what their links cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// The node of every rank.
    pub topology: Topology,
    /// How many of the last ranks are summation servers, which only add.
    pub servers: usize,
    /// What messages within and between nodes cost, and additions.
    pub network: Network,
    /// Seconds of a core that a rank spends for each byte that it sends and receives between nodes.
    pub far_cpu: f64,
    /// Whether ranks of a node can read each other's memory.
    pub shares_memory: bool,
    /// The cores that workers share; nothing where communication takes no time from computation.
    pub cores: Option<Cores>,
}

impl Cluster {
    /// Seconds from the start of a short message to its arrival over TCP in one data centre.
    pub const ETHERNET_LATENCY: f64 = 3e-5;

    /// Nodes of `ranks_per_node` consecutive ranks, the last one with what remains of `ranks`. Each node has
    /// one link of so many Gbit/s in each direction, with TCP's latency in a data centre; memory and
    /// additions are those of [`Network::default`].
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

    /// Ranks that compute.
    pub fn workers(&self) -> usize {
        self.topology.world() - self.servers
    }

    /// The same without its servers.
    pub(crate) fn without_servers(&self) -> Self {
        if self.servers == 0 {
            return self.clone();
        }
        let node = |worker: usize| self.topology.node_of(Rank(worker));
        let nodes: Vec<usize> = (0..self.workers()).map(node).collect();
        Cluster { topology: Topology::of_names(&nodes), servers: 0, ..self.clone() }
    }

    /// Whether all ranks can read each other's memory.
    pub(crate) fn is_one_memory(&self) -> bool {
        self.shares_memory && self.topology.nodes().len() == 1
    }

    /// Ranks of the fullest node.
    pub(crate) fn fullest_node(&self) -> usize {
        self.topology.nodes().iter().map(Vec::len).max().unwrap_or(1)
    }

    /// Seconds of a cost that pass within nodes and in additions.
    pub(crate) fn near_seconds(&self, cost: &Cost, size: usize) -> f64 {
        self.network.seconds(&Cost { far: Traffic::default(), ..*cost }, size)
    }

    /// What each rank adds to a sum: workers one part each, servers nothing.
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
