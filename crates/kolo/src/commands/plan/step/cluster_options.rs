//! Options for the cluster: one link for all nodes, or a file.

use std::path::{Path, PathBuf};

use clap::Args;
use kolo::Failure;
use kolo_plan::step::Caps;
use kolo_plan::{Cluster, ClusterFile, LinkChoice};

use crate::commands::plan::numbers::positive;

/// Options for the cluster: one link for all nodes, or a file.
#[derive(Args)]
pub(super) struct ClusterOptions {
    /// The link between nodes, by its name
    #[arg(long, value_name = "LINK", default_value = "10gbe", conflicts_with = "cluster")]
    between: String,
    /// The link between the workers of a node, by its name [default: memory]
    #[arg(long, value_name = "LINK", conflicts_with = "cluster")]
    inside: Option<String>,
    /// Workers of each node
    #[arg(long, value_name = "NUMBER", default_value_t = 1, conflicts_with = "cluster")]
    workers_per_node: usize,
    /// Summation servers, each on a node of its own
    #[arg(long, value_name = "NUMBER", default_value_t = 0, conflicts_with = "cluster")]
    servers: usize,
    /// Cores of each node, which its workers and their sockets share; 0 means enough [default: the cores of
    /// the measured host, else enough]
    #[arg(long, value_name = "NUMBER", conflicts_with = "cluster")]
    cores: Option<f64>,
    /// Nanoseconds of a core per byte that a worker sends and receives [default: 0.21 for links with
    /// sockets, as measured over loopback]
    #[arg(long, value_name = "NUMBER", value_parser = positive, conflicts_with = "cluster")]
    socket_ns: Option<f64>,
    /// Slowdown of a worker when all cores compute [default: as measured by --model or --profile]
    #[arg(long, value_name = "TIMES", value_parser = positive, conflicts_with = "cluster")]
    full_slowdown: Option<f64>,
    /// Put all workers on one host, whose cores they share. --between loopback implies this
    #[arg(long, conflicts_with = "cluster")]
    one_host: bool,
    /// TOML file that describes the cluster
    #[arg(long, value_name = "FILE")]
    cluster: Option<PathBuf>,
}

/// The given cluster, checked as far as possible without a number of workers.
pub(super) struct Place {
    file: ClusterFile,
    /// Prefix of error messages.
    name: String,
}

impl ClusterOptions {
    pub(super) fn place(&self) -> Result<Place, Failure> {
        if let Some(path) = &self.cluster {
            return Ok(Place { file: read(path)?, name: format!("{}: ", path.display()) });
        }
        let file = ClusterFile {
            workers_per_node: self.workers_per_node,
            inside: self.inside.clone().map(LinkChoice::Named),
            servers: self.servers,
            cores: self.cores,
            socket_ns: self.socket_ns,
            full_slowdown: self.full_slowdown.unwrap_or(1.0),
            one_host: self.one_host || self.between == "loopback",
            ..ClusterFile::of_link(&self.between)
        };
        Ok(Place { file, name: String::new() })
    }

    /// Fills in the measured cores and slowdown of the host where the user gave none.
    pub(super) fn complete(&self, place: &mut Place, cores: Option<(f64, f64)>) {
        let file = &mut place.file;
        if let (None, Some((count, slowdown))) = (file.cores, cores) {
            file.cores = Some(count);
            if self.full_slowdown.is_none() {
                file.full_slowdown = slowdown;
            }
        }
        // 0 means no contention.
        file.cores = file.cores.filter(|count| *count != 0.0);
    }
}

impl Place {
    /// Returns the bucket sizes of a job on this cluster: large ones if all workers share memory.
    pub(super) fn caps(&self, workers: usize) -> Caps {
        Caps::of_mib(if workers > self.file.workers_per_node { 4.0 } else { 25.0 })
    }

    pub(super) fn of(&self, workers: usize) -> Result<Cluster, Failure> {
        self.with_servers(workers, self.file.servers)
    }

    pub(super) fn with_servers(&self, workers: usize, servers: usize) -> Result<Cluster, Failure> {
        let file = ClusterFile { servers, ..self.file.clone() };
        file.of(workers).map_err(|e| Failure::input(format!("{}{e}", self.name)))
    }

    pub(super) fn servers(&self) -> usize {
        self.file.servers
    }
}

fn read(file: &Path) -> Result<ClusterFile, Failure> {
    let text =
        kolo_durable::read_to_string(file).map_err(|e| Failure::input(format!("{}: {e}", file.display())))?;
    toml::from_str(&text).map_err(|e| Failure::input(format!("{}: {}", file.display(), e.message())))
}
