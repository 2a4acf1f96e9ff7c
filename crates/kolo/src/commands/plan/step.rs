//! `kolo plan step`: a step on more workers than anybody has.

use std::path::{Path, PathBuf};

use clap::Args;
use kolo_plan::step::{Disturbances, FailureCosts, Outlook, StepProfile, not_worth_from, outlook, predict};
use kolo_plan::{Checkpoints, ClusterFile, LINKS, LinkChoice};

use super::{positive, run_profile};
use crate::output::{print, print_json};
use kolo::Failure;

/// Say what a step takes on so many workers of a cluster, from what it takes on one.
///
/// Each worker computes as long as one alone, so the global batch grows with them. Buckets are ready as the
/// run of --from has measured, or one after another in the backward pass, and are all-reduced by the schedules
/// that Kolo runs.
#[derive(Args)]
#[command(after_help = links())]
pub(crate) struct Step {
    #[command(flatten)]
    profile: ProfileOptions,
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
    /// Standard deviation of what a worker computes in a step, in percent of it: all wait for the slowest
    #[arg(long, value_name = "PERCENT", value_parser = positive)]
    spread: Option<f64>,
    #[command(flatten)]
    failures: FailureOptions,
    /// Wait for all buckets before the next forward pass, as other frameworks do
    #[arg(long)]
    no_forward_overlap: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What one worker does in a step: measured, or from figures.
#[derive(Args)]
struct ProfileOptions {
    /// Take the step of the run in this folder: its passes, its optimizer, its buckets
    #[arg(long, value_name = "RUN_FOLDER", conflicts_with_all = FIGURES)]
    from: Option<PathBuf>,
    /// Milliseconds of one worker's forward pass
    #[arg(long, value_name = "MS", value_parser = positive, required_unless_present = "from")]
    forward_ms: Option<f64>,
    /// Milliseconds of its backward pass
    #[arg(long, value_name = "MS", value_parser = positive, required_unless_present = "from")]
    backward_ms: Option<f64>,
    /// Milliseconds of its optimizer
    #[arg(long, value_name = "MS", value_parser = positive, required_unless_present = "from")]
    optimizer_ms: Option<f64>,
    /// Parameters of the model, in f32
    #[arg(long, value_name = "NUMBER", value_parser = positive, required_unless_present = "from")]
    parameters: Option<f64>,
    /// Bucket size in MiB
    #[arg(long, value_name = "MIB", value_parser = positive, default_value = "25")]
    bucket_cap_mb: f64,
}

/// What a run folder says instead.
const FIGURES: [&str; 5] = ["forward_ms", "backward_ms", "optimizer_ms", "parameters", "bucket_cap_mb"];

impl ProfileOptions {
    fn profile(&self) -> Result<StepProfile, Failure> {
        if let Some(folder) = &self.from {
            return run_profile::read(folder);
        }
        let seconds = |ms: Option<f64>| ms.unwrap_or_default() / 1e3;
        let [forward, backward, optimizer] =
            [self.forward_ms, self.backward_ms, self.optimizer_ms].map(seconds);
        let (bytes, cap) =
            (4.0 * self.parameters.unwrap_or_default(), self.bucket_cap_mb * f64::from(1 << 20));
        Ok(StepProfile::even(forward, backward, optimizer, bytes, cap))
    }
}

/// How often workers fail, and what that costs.
#[derive(Args)]
struct FailureOptions {
    /// Mean time between the failures of one worker, in hours
    #[arg(long, value_name = "HOURS", value_parser = positive)]
    worker_mtbf_hours: Option<f64>,
    /// Seconds from a failure until the others train on, in an elastic job
    #[arg(long, value_name = "SECONDS", value_parser = positive, default_value = "5")]
    #[arg(requires = "worker_mtbf_hours")]
    recovery_s: f64,
    /// Seconds for which a checkpoint stops training, in a job that restarts from it
    #[arg(long, value_name = "SECONDS", value_parser = positive, default_value = "30")]
    #[arg(requires = "worker_mtbf_hours")]
    checkpoint_s: f64,
    /// Seconds from a failure until a job that restarts trains again
    #[arg(long, value_name = "SECONDS", value_parser = positive, default_value = "300")]
    #[arg(requires = "worker_mtbf_hours")]
    restart_s: f64,
}

impl FailureOptions {
    fn costs(&self) -> Option<FailureCosts> {
        let worker_mtbf = self.worker_mtbf_hours? * 3600.0;
        let checkpoints = Checkpoints { write: self.checkpoint_s, restart: self.restart_s };
        Some(FailureCosts { worker_mtbf, recovery: self.recovery_s, checkpoints })
    }
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
        let profile = self.profile.profile()?;
        let place = self.cluster.as_ref().map(|file| format!("{}: ", file.display())).unwrap_or_default();
        let spread = self.spread.map_or(0.0, |percent| percent / 100.0);
        let disturbances = Disturbances { spread, failures: self.failures.costs() };
        let told = |&workers: &usize| {
            let cluster = cluster.of(workers).map_err(|e| Failure::input(format!("{place}{e}")))?;
            let prediction = predict(&profile, &cluster, !self.no_forward_overlap);
            Ok(outlook(prediction, &profile, &disturbances))
        };
        let rows = self.workers.iter().map(told).collect::<Result<Vec<Outlook>, Failure>>()?;
        if self.json { print_json(&rows) } else { print(&table(&profile, &rows)) }
    }
}

fn read(file: &Path) -> Result<ClusterFile, Failure> {
    let text =
        std::fs::read_to_string(file).map_err(|e| Failure::input(format!("{}: {e}", file.display())))?;
    toml::from_str(&text).map_err(|e| Failure::input(format!("{}: {}", file.display(), e.message())))
}

fn table(profile: &StepProfile, rows: &[Outlook]) -> String {
    let mut text = format!(
        "one worker: {:.1} ms a step; {:.1} MB of gradients in {} buckets\n\n",
        profile.alone() * 1e3,
        profile.bytes() / 1e6,
        profile.buckets.len()
    );
    let disturbed = rows.iter().any(|row| row.straggling > 0.0 || row.goodput_with_restarts.is_some());
    text += &format!(
        "{:>8}{:>12}{:>12}{:>12}{:>12}{}  all-reduce\n",
        "workers",
        "step, ms",
        "exposed, ms",
        "wire, ms",
        "efficiency",
        if disturbed { disturbed_titles() } else { String::new() }
    );
    for row in rows {
        let told = &row.prediction;
        let [step, exposed, wire] = [told.seconds, told.exposed, told.wire].map(|seconds| seconds * 1e3);
        text += &format!(
            "{:>8}{step:>12.1}{exposed:>12.1}{wire:>12.1}{:>10.1} %{}  {}\n",
            told.workers,
            told.efficiency * 100.0,
            if disturbed { disturbed_columns(row) } else { String::new() },
            told.algorithm
        );
    }
    if let Some(workers) = not_worth_from(rows) {
        text += &format!(
            "\nFrom {workers} workers on another one brings less than half of what one alone does.\n"
        );
    }
    text
}

fn disturbed_titles() -> String {
    format!("{:>13}{:>12}{:>12}{:>12}", "slowest, ms", "goodput", "restarting", "speedup")
}

/// The columns of stragglers and failures: what workers wait for the slowest of them; the share of time that
/// counts in an elastic job, and in one that restarts; the speedup.
fn disturbed_columns(row: &Outlook) -> String {
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    let restarting = row.goodput_with_restarts.map(percent).unwrap_or_default();
    let (straggling, goodput, speedup) = (row.straggling * 1e3, percent(row.goodput), row.speedup);
    format!("{straggling:>13.1}{goodput:>12}{restarting:>12}{speedup:>11.1}x")
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
