//! What an algorithm costs, and what that takes on a given network.
//!
//! Costs count what lies on the critical path of the slowest rank: messages one after another, bytes through one link in
//! one direction, bytes added (Thakur, Rabenseifner & Gropp 2005, section 2: T = messages·α + bytes·β + added·γ).

use serde::{Deserialize, Serialize};

use super::Problem;

/// Messages and elements over one kind of link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Messages that wait for each other.
    pub messages: f64,
    /// Elements through the busiest link in one direction.
    pub elements: f64,
}

/// What an algorithm costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Between ranks that share memory.
    pub near: Traffic,
    /// Between nodes; the ranks of a node share one link.
    pub far: Traffic,
    /// Elements added to others by the busiest rank.
    pub added: f64,
}

/// One kind of link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Seconds from the start of a message to its arrival, whatever its length: α.
    pub latency: f64,
    /// Seconds for each further byte in one direction: β.
    pub per_byte: f64,
}

/// What a group measured when it formed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Between ranks that share memory.
    pub near: Link,
    /// Between nodes.
    pub far: Link,
    /// Seconds for each byte that is added to another: γ.
    pub add_per_byte: f64,
    /// Ranks for each core where it is most crowded, at least 1: how much slower everything gets that needs a core.
    pub crowding: f64,
}

impl Network {
    /// Seconds that `cost` takes when an element has `size` bytes.
    pub fn seconds(&self, cost: &Cost, size: usize) -> f64 {
        let over = |link: &Link, traffic: &Traffic| {
            traffic.messages * link.latency + traffic.elements * size as f64 * link.per_byte
        };
        let added = cost.added * size as f64 * self.add_per_byte;
        self.crowding * (over(&self.near, &cost.near) + added) + over(&self.far, &cost.far)
    }
}

impl Default for Network {
    /// Shared memory, and 10 Gbit/s between nodes: until something has been measured.
    fn default() -> Self {
        Network {
            near: Link { latency: 5e-7, per_byte: 5e-11 },
            far: Link { latency: 3e-5, per_byte: 8e-10 },
            add_per_byte: 5e-11,
            crowding: 1.0,
        }
    }
}

/// The cost of an algorithm that does not know of nodes: of what each rank sends, the share `crossing` leaves its node.
pub(super) fn flat(problem: &Problem<'_>, traffic: Traffic, crossing: f64, added: f64) -> Cost {
    let nodes = problem.topology.nodes();
    if nodes.len() == 1 {
        return Cost { near: traffic, added, ..Cost::default() };
    }
    let sharing = nodes.iter().map(Vec::len).max().unwrap_or(1) as f64;
    let far = Traffic { elements: traffic.elements * sharing * crossing, ..traffic };
    Cost { far, added, ..Cost::default() }
}

/// The share of the peers of a rank that are on other nodes.
pub(super) fn peers_elsewhere(problem: &Problem<'_>) -> f64 {
    let (world, nodes) = (problem.world() as f64, problem.topology.nodes().len() as f64);
    if world > 1.0 { (world - world / nodes) / (world - 1.0) } else { 0.0 }
}

/// The share of the ranks that are the first of their node: what crosses when neighbours talk to neighbours only.
pub(super) fn first_of_node(problem: &Problem<'_>) -> f64 {
    problem.topology.nodes().len() as f64 / problem.world() as f64
}
