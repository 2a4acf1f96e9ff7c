//! A cluster as its users write it down.

use kolo_schedule::{Link, Network, Topology};
use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::links::{LINKS, SOCKET};

/// A cluster of equal nodes, in TOML:
///
/// ```toml
/// workers_per_node = 8
/// inside = "nvlink4"
/// between = { gigabits = 400, latency_us = 5 }
/// links_per_node = 8
/// oversubscription = 2
/// ```
///
/// Only `between` must be there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// Workers of each node.
    #[serde(default = "one_worker")]
    pub workers_per_node: usize,
    /// The link of each worker to the others of its node; nothing: memory.
    pub inside: Option<LinkChoice>,
    /// The link of each node to the others.
    pub between: LinkChoice,
    /// Such links of each node, which share the traffic.
    #[serde(default = "one")]
    pub links_per_node: f64,
    /// How many times as much as the switches carry the nodes' links could send.
    #[serde(default = "one")]
    pub oversubscription: f64,
}

/// A link by the name of its kind, or by figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LinkChoice {
    /// One of [`LINKS`].
    Named(String),
    /// A link that is known by figures.
    Figures {
        /// Gbit/s of payload in each direction.
        gigabits: f64,
        /// Microseconds from the start of a short message to its arrival, but for its handling at both ends.
        latency_us: f64,
        /// Microseconds of a worker's time for each message that it sends or receives; as through a socket
        /// where it is left out.
        #[serde(default = "socket")]
        per_message_us: f64,
    },
}

/// Why a cluster cannot be one.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// There is no such kind of link.
    #[error(
        "there is no link `{name}`; known are {}, or a file gives {{ gigabits = …, latency_us = … }}",
        known()
    )]
    UnknownLink {
        /// The name that was given.
        name: String,
    },
    /// A figure is not above 0.
    #[error("{field} must be a number above 0")]
    NotPositive {
        /// Which one.
        field: &'static str,
    },
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

fn one_worker() -> usize {
    1
}

impl ClusterFile {
    /// The cluster with so many workers, the last node with what remains of them.
    ///
    /// # Errors
    ///
    /// A link is unknown, or a figure not above 0.
    pub fn of(&self, workers: usize) -> Result<Cluster, ClusterError> {
        positive("workers_per_node", self.workers_per_node as f64)?;
        let shared = positive("links_per_node", self.links_per_node)?
            / positive("oversubscription", self.oversubscription)?;
        let defaults = Network::default();
        let near = self.inside.as_ref().map_or(Ok(defaults.near), |link| link.link(1.0))?;
        let nodes: Vec<usize> = (0..workers).map(|worker| worker / self.workers_per_node).collect();
        let network = Network { near, far: self.between.link(shared)?, ..Network::default() };
        Ok(Cluster { topology: Topology::of_names(&nodes), network })
    }
}

impl LinkChoice {
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
        ClusterFile {
            workers_per_node: 2,
            inside: None,
            between: LinkChoice::Named(name.into()),
            links_per_node: 1.0,
            oversubscription: 1.0,
        }
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
    fn what_is_no_cluster_is_told_in_a_sentence() {
        let error = ethernet("token-ring").of(4).unwrap_err().to_string();
        assert!(error.starts_with("there is no link `token-ring`; known are 1gbe, "), "{error}");
        let none = ClusterFile { workers_per_node: 0, ..ethernet("hdr") };
        assert_eq!(none.of(4).unwrap_err(), ClusterError::NotPositive { field: "workers_per_node" });
        let figures = LinkChoice::Figures { gigabits: -1.0, latency_us: 1.0, per_message_us: 1.0 };
        let negative = ClusterFile { between: figures, ..ethernet("hdr") };
        assert_eq!(negative.of(4).unwrap_err().to_string(), "gigabits must be a number above 0");
    }
}
