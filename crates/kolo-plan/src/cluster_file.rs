//! Cluster descriptions as users write them.

use kolo_schedule::{Curve, Link, Network, Topology};
use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::cores::Cores;
use crate::links::{LINKS, SOCKET, SOCKET_BYTE};

/// Cluster of equal nodes, in TOML:
///
/// ```toml
/// workers_per_node = 8
/// inside = "nvlink4"
/// between = { gigabits = 400, latency_us = 5 }
/// links_per_node = 8
/// oversubscription = 2
/// servers = 0                # summation servers, each on its own node
/// cores = 64                 # per node, shared by workers and their sockets; if left out, not shared
/// socket_ns = 0.2            # ns of a core per byte that a worker sends and receives over `between`
/// full_slowdown = 1.1        # computing time when all cores compute / when only this worker computes
/// sum_gbytes = 20            # GB/s at which a worker adds to others
/// one_host = false           # true if all nodes are namespaces of one host and share its cores
/// ```
///
/// Only `between` is required.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// Number of workers per node.
    #[serde(default = "one_worker")]
    pub workers_per_node: usize,
    /// Link between the workers of a node; `None` for shared memory.
    pub inside: Option<LinkChoice>,
    /// Link between nodes.
    pub between: LinkChoice,
    /// Number of such links per node, which share the traffic.
    #[serde(default = "one")]
    pub links_per_node: f64,
    /// Ratio of what the nodes' links can send to what the switches carry.
    #[serde(default = "one")]
    pub oversubscription: f64,
    /// Number of summation servers, each on its own node.
    #[serde(default)]
    pub servers: usize,
    /// Cores per node, one for each worker; `None` if communication takes no computing time, as with GPUs.
    pub cores: Option<f64>,
    /// Nanoseconds of a core per byte that a worker sends and receives over `between`. `None` means the cost
    /// of sockets over loopback, or zero for links without sockets.
    pub socket_ns: Option<f64>,
    /// Ratio of a worker's computing time when all cores compute to its time alone.
    #[serde(default = "one")]
    pub full_slowdown: f64,
    /// GB/s at which a worker adds to others: about 20 for a core, 1000 for an accelerator.
    #[serde(default = "of_a_core")]
    pub sum_gbytes: f64,
    /// True if all nodes are namespaces of one host and share its cores.
    #[serde(default)]
    pub one_host: bool,
}

/// Link, named by its kind or described by figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LinkChoice {
    /// One of [`LINKS`].
    Named(String),
    /// Link described by figures.
    Figures {
        /// Gbit/s of payload in each direction.
        gigabits: f64,
        /// Microseconds from the start of a short message to its arrival, without its handling at both ends.
        latency_us: f64,
        /// Microseconds of a worker's time per message that it sends or receives; defaults to a socket's.
        #[serde(default = "socket")]
        per_message_us: f64,
    },
}

/// Error in the description of a cluster.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum ClusterError {
    /// The kind of link does not exist.
    #[error(
        "there is no link `{name}`; known are {}, or a file gives {{ gigabits = …, latency_us = … }}",
        known()
    )]
    UnknownLink { name: String },
    /// A figure is not positive.
    #[error("{field} must be a number above 0")]
    NotPositive { field: &'static str },
}

fn known() -> String {
    LINKS.iter().map(|link| link.name).collect::<Vec<_>>().join(", ")
}

fn positive(field: &'static str, number: f64) -> Result<f64, ClusterError> {
    match number > 0.0 && number.is_finite() {
        true => Ok(number),
        false => Err(ClusterError::NotPositive { field }),
    }
}

fn one() -> f64 {
    1.0
}

fn socket() -> f64 {
    SOCKET * 1e6
}

fn of_a_core() -> f64 {
    20.0
}

fn one_worker() -> usize {
    1
}

impl ClusterFile {
    /// Returns nodes of one worker each, connected by the named link.
    pub fn of_link(between: &str) -> Self {
        ClusterFile {
            workers_per_node: 1,
            inside: None,
            between: LinkChoice::Named(between.into()),
            links_per_node: 1.0,
            oversubscription: 1.0,
            servers: 0,
            cores: None,
            socket_ns: None,
            full_slowdown: 1.0,
            sum_gbytes: of_a_core(),
            one_host: false,
        }
    }

    /// Returns the cluster for this number of workers. The last node has the remaining ones; servers follow.
    ///
    /// # Errors
    ///
    /// If a link is unknown or a figure is not positive.
    pub fn of(&self, workers: usize) -> Result<Cluster, ClusterError> {
        positive("workers_per_node", self.workers_per_node as f64)?;
        let shared = positive("links_per_node", self.links_per_node)?
            / positive("oversubscription", self.oversubscription)?;
        let defaults = Network::default();
        let near = self.inside.as_ref().map_or(Ok(defaults.near), |link| link.link(1.0))?;
        let cores = self.cores(workers)?;
        let servers = if workers > 1 { self.servers } else { 0 };
        let of_workers = (0..workers).map(|worker| worker / self.workers_per_node);
        let nodes: Vec<usize> = of_workers.chain((0..servers).map(|server| workers + server)).collect();
        let crowding = cores.map_or(1.0, |cores| cores.crowding());
        let far = self.between.link(shared)?;
        let per_byte = 1e-9 / positive("sum_gbytes", self.sum_gbytes)?;
        let add = Curve(vec![(0.0, 0.0), (1e6, 1e6 * per_byte)]);
        let network = Network { near, far, add, crowding, ..Network::default() };
        let far_cpu = match self.socket_ns {
            Some(nanoseconds) => 1e-9 * positive("socket_ns", nanoseconds)?,
            None => self.between.cpu_per_byte(),
        };
        let topology = Topology::of_names(&nodes);
        Ok(Cluster { topology, servers, network, far_cpu, shares_memory: self.inside.is_none(), cores })
    }

    fn cores(&self, workers: usize) -> Result<Option<Cores>, ClusterError> {
        let full_slowdown = positive("full_slowdown", self.full_slowdown)?;
        let Some(count) = self.cores else { return Ok(None) };
        let count = positive("cores", count)?;
        let workers = if self.one_host { workers } else { workers.min(self.workers_per_node) } as f64;
        Ok(Some(Cores { count, workers, full_slowdown }))
    }
}

impl LinkChoice {
    /// Returns the seconds of a core per byte. A link described by figures costs as much as a socket if its
    /// messages take as long as a socket's.
    fn cpu_per_byte(&self) -> f64 {
        match self {
            LinkChoice::Named(name) => {
                LINKS.iter().find(|link| link.name == name).map_or(0.0, |link| link.cpu_per_byte)
            }
            LinkChoice::Figures { per_message_us, .. } if *per_message_us >= socket() => SOCKET_BYTE,
            LinkChoice::Figures { .. } => 0.0,
        }
    }

    fn link(&self, count: f64) -> Result<Link, ClusterError> {
        match self {
            LinkChoice::Named(name) => {
                let known = LINKS.iter().find(|link| link.name == name);
                known
                    .map(|link| link.link(count))
                    .ok_or_else(|| ClusterError::UnknownLink { name: name.clone() })
            }
            LinkChoice::Figures { gigabits, latency_us, per_message_us } => {
                let gigabits = positive("gigabits", *gigabits)?;
                let latency_us = positive("latency_us", *latency_us)?;
                let per_message_us = positive("per_message_us", *per_message_us)?;
                let link = Link::new(latency_us * 1e-6, 8.0 / (gigabits * 1e9 * count));
                Ok(Link { per_message: per_message_us * 1e-6, ..link })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ethernet(name: &str) -> ClusterFile {
        ClusterFile { workers_per_node: 2, ..ClusterFile::of_link(name) }
    }

    #[test]
    fn servers_and_cores_are_those_of_the_file() {
        let file = ClusterFile { servers: 2, cores: Some(2.0), ..ethernet("1gbe") };
        let cluster = file.of(4).unwrap();
        assert_eq!((cluster.topology.world(), cluster.workers(), cluster.topology.nodes().len()), (6, 4, 4));
        assert_eq!(cluster.cores.map(|cores| cores.workers), Some(2.0));
        let one_host = ClusterFile { one_host: true, ..file.clone() }.of(4).unwrap();
        assert_eq!((one_host.cores.map(|cores| cores.workers), one_host.network.crowding), (Some(4.0), 2.0));
        assert_eq!(ClusterFile { socket_ns: Some(2.0), ..file.clone() }.of(4).unwrap().far_cpu, 2e-9);
        assert_eq!(file.of(1).unwrap().servers, 0, "one worker has nothing to add up");
        let none = ClusterFile { cores: Some(0.0), ..file };
        assert_eq!(none.of(4).unwrap_err(), ClusterError::NotPositive { field: "cores" });
    }

    #[test]
    fn nodes_share_links_and_switches() {
        let seconds = |file: &ClusterFile| file.of(5).unwrap().network.far.exchange.seconds(1e9);
        let (one, slow) = (ethernet("100gbe"), ethernet("1gbe"));
        assert!((seconds(&slow) / seconds(&one) - 100.0).abs() < 0.1);
        let four = ClusterFile { links_per_node: 4.0, ..one.clone() };
        assert!((seconds(&one) / seconds(&four) - 4.0).abs() < 0.01);
        let crowded = ClusterFile { oversubscription: 4.0, ..four };
        assert!((seconds(&one) / seconds(&crowded) - 1.0).abs() < 0.01);
        assert_eq!(one.of(5).unwrap().topology.nodes().len(), 3);
    }

    #[test]
    fn errors_name_the_link_or_the_field() {
        let error = ethernet("token-ring").of(4).unwrap_err().to_string();
        assert!(error.starts_with("there is no link `token-ring`; known are loopback, "), "{error}");
        let none = ClusterFile { workers_per_node: 0, ..ethernet("hdr") };
        assert_eq!(none.of(4).unwrap_err(), ClusterError::NotPositive { field: "workers_per_node" });
        let figures = LinkChoice::Figures { gigabits: -1.0, latency_us: 1.0, per_message_us: 1.0 };
        let negative = ClusterFile { between: figures, ..ethernet("hdr") };
        assert_eq!(negative.of(4).unwrap_err().to_string(), "gigabits must be a number above 0");
    }
}
