//! `kolo plan step`: a step on more workers than anybody has.

use std::path::{Path, PathBuf};

use clap::Args;
use kolo_plan::step::{Prediction, StepProfile, predict};
use kolo_plan::{ClusterFile, LINKS, LinkChoice};

use super::positive;
use crate::output::{print, print_json};
use kolo::Failure;

/// Say what a step takes on so many workers of a cluster, from what it takes on one.
///
/// Each worker computes as long as one alone, so the global batch grows with them. Buckets are ready one
/// after another in the backward pass, and are all-reduced by the schedules that Kolo runs.
#[derive(Args)]
#[command(after_help = links())]
pub(crate) struct Step {
    /// Milliseconds of one worker's forward pass
    #[arg(long, value_name = "MS", value_parser = positive)]
    forward_ms: f64,
    /// Milliseconds of its backward pass
    #[arg(long, value_name = "MS", value_parser = positive)]
    backward_ms: f64,
    /// Milliseconds of its optimizer
    #[arg(long, value_name = "MS", value_parser = positive)]
    optimizer_ms: f64,
    /// Parameters of the model, in f32
    #[arg(long, value_name = "NUMBER", value_parser = positive)]
    parameters: f64,
    /// Bucket size in MiB
    #[arg(long, value_name = "MIB", value_parser = positive, default_value = "25")]
    bucket_cap_mb: f64,
    /// The link between nodes, by its name
    #[arg(long, value_name = "LINK", default_value = "10gbe", conflicts_with = "cluster")]
    between: String,
    /// The link between the workers of a node, by its name [default: memory]
    #[arg(long, value_name = "LINK", conflicts_with = "cluster")]
    inside: Option<String>,
    /// Workers of each node
    #[arg(long, value_name = "NUMBER", default_value_t = 1, conflicts_with = "cluster")]
    workers_per_node: usize,
    /// The cluster, in a TOML file
    #[arg(long, value_name = "FILE")]
    cluster: Option<PathBuf>,
    /// Numbers of workers
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          default_values_t = [1, 2, 4, 8, 16, 64, 256, 1024])]
    workers: Vec<usize>,
    /// Wait for all buckets before the next forward pass, as other frameworks do
    #[arg(long)]
    no_forward_overlap: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Step {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if self.workers.contains(&0) {
            return Err(Failure::input("--workers 0: a job has at least one"));
        }
        let cluster = match &self.cluster {
            Some(file) => read(file)?,
            None => ClusterFile {
                workers_per_node: self.workers_per_node,
                inside: self.inside.clone().map(LinkChoice::Named),
                between: LinkChoice::Named(self.between.clone()),
                links_per_node: 1.0,
                oversubscription: 1.0,
            },
        };
        let [forward, backward, optimizer] =
            [self.forward_ms, self.backward_ms, self.optimizer_ms].map(|ms| ms / 1e3);
        let (bytes, cap) = (4.0 * self.parameters, self.bucket_cap_mb * f64::from(1 << 20));
        let profile = StepProfile::even(forward, backward, optimizer, bytes, cap);
        let place = self.cluster.as_ref().map(|file| format!("{}: ", file.display())).unwrap_or_default();
        let told = |&workers: &usize| {
            let cluster = cluster.of(workers).map_err(|e| Failure::input(format!("{place}{e}")))?;
            Ok(predict(&profile, &cluster, !self.no_forward_overlap))
        };
        let rows = self.workers.iter().map(told).collect::<Result<Vec<Prediction>, Failure>>()?;
        if self.json { print_json(&rows) } else { print(&table(&profile, &rows)) }
    }
}

fn read(file: &Path) -> Result<ClusterFile, Failure> {
    let text =
        std::fs::read_to_string(file).map_err(|e| Failure::input(format!("{}: {e}", file.display())))?;
    toml::from_str(&text).map_err(|e| Failure::input(format!("{}: {}", file.display(), e.message())))
}

fn table(profile: &StepProfile, rows: &[Prediction]) -> String {
    let mut text = format!(
        "one worker: {:.1} ms a step; {:.1} MB of gradients in {} buckets\n\n",
        profile.alone() * 1e3,
        profile.bytes() / 1e6,
        profile.buckets.len()
    );
    text += &format!(
        "{:>8}{:>12}{:>12}{:>12}{:>12}  all-reduce\n",
        "workers", "step, ms", "exposed, ms", "wire, ms", "efficiency"
    );
    for row in rows {
        let [step, exposed, wire] = [row.seconds, row.exposed, row.wire].map(|seconds| seconds * 1e3);
        text += &format!(
            "{:>8}{step:>12.1}{exposed:>12.1}{wire:>12.1}{:>10.1} %  {}\n",
            row.workers,
            row.efficiency * 100.0,
            row.algorithm
        );
    }
    text
}

fn links() -> String {
    let mut text = String::from("Links, each way:\n");
    for link in LINKS {
        text += &format!(
            "  {:8} {:>6} Gbit/s × {:.2}, {:>4.1} µs, {} µs a message: {}\n",
            link.name,
            link.gigabits,
            link.payload,
            link.latency * 1e6,
            link.per_message * 1e6,
            link.source
        );
    }
    text
}
