//! A cluster as far as collectives are concerned: its ranks, its nodes, and what lies between them.

use kolo_schedule::{Link, Network, Topology};

/// Ranks on nodes, and what their links cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// The node of every rank.
    pub topology: Topology,
    /// What messages within and between nodes cost, and additions.
    pub network: Network,
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
        Cluster { topology: Topology::of_names(&nodes), network: Network { far, ..Network::default() } }
    }
}
