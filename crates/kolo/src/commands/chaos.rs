//! `kolo chaos`: injects faults into a job and compares the bits.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use kolo::Failure;
use kolo_comm::env::is_worker;
use kolo_ddp::Sharding;
use kolo_elastic::{ARBITERS, ArbiterKind};
use kolo_recipe::Recipe;
use kolo_verify::chaos::{ChaosJob, Program, chaos};
use signal_hook::consts::signal::{SIGINT, SIGTERM};

use super::chaos_jobs::{
    additions, check_job, given, reads_text, with_defaults, with_divided_state, with_own_samples,
};
use super::train;
use crate::options::seconds;

/// Check that a job survives its workers: run it, kill, stop, pause and cut off workers at random, and
/// compare the bits.
///
/// The job is a small `kolo train`, with your options after `--`: `kolo chaos -- --transport tcp --steps
/// 500`. It may also be your own elastic program that trains with Kolo and ends by itself: `kolo chaos --
/// ./my-trainer --its-options`. The seed decides the faults of a run. Pairs of seeds take turns: seeds 2 and
/// 3 train on images in a folder, with two loading threads, a validation split, averaged weights and mixed
/// images; seeds 4 and 5 divide the optimizer's state, 6 and 7 also gradients, 8 and 9 also parameters (no
/// two owners of a part die at once), and in 10 and 11 all workers have one copy. If a run fails, hangs,
/// loses a step or ends in other weights, Kolo keeps its folder and exits with 1.
#[derive(Args)]
pub(crate) struct Chaos {
    /// Number of runs, each with its own seed
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Workers of the job, or of each of its nodes
    #[arg(long, default_value_t = 4)]
    nproc: usize,
    /// Nodes of the job, each with a launcher on this machine. Faults also hit launchers
    #[arg(long, default_value_t = 1)]
    nodes: usize,
    /// How several launchers decide who continues. For each run Kolo creates the folder or starts the etcd
    /// that the arbiter needs
    #[arg(long, default_value = "folder", value_parser = arbiters())]
    arbiter: &'static ArbiterKind,
    /// Give each node its own network namespace, and sometimes cut its link; needs root
    #[arg(long)]
    cut_links: bool,
    /// Summation servers of the job. Faults also hit servers
    #[arg(long, default_value_t = 0)]
    servers: usize,
    /// Keep the run folder on a disk in memory of this size, and sometimes fill it up; needs root
    #[arg(long, value_name = "MIB")]
    disk_mb: Option<u64>,
    /// Seconds after which a run counts as hung
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds)]
    limit: f64,
    /// Print JSON at the end: all faults and results. The lines of the runs then go to standard error
    #[arg(long)]
    json: bool,
    /// Options of `kolo train`, or a program and its arguments in its place
    #[arg(last = true, value_name = "OPTIONS or PROGRAM")]
    words: Vec<OsString>,
}

/// Options of `kolo train` that `kolo chaos` sets itself.
const OWN: [&str; 8] = [
    "--nproc", "--servers", "--out", "--resume", "--resume-or-start", "--max-restarts", "--master-port",
    "--find-lr",
];

impl Chaos {
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        train::refuse_bare(&self.words)?;
        // `kolo train` is the job of options alone.
        if let Some(options) = train::options_of(&self.words) {
            self.words = options.to_vec();
        }
        if is_worker() {
            return Err(Failure::input("kolo chaos starts workers itself: run it without a launcher"));
        }
        let is_own = self.words.first().is_some_and(|word| !word.to_string_lossy().starts_with('-'));
        if let Some(option) = OWN.iter().find(|option| !is_own && given(&self.words, option)) {
            return Err(Failure::input(format!(
                "{option} after `--`: kolo chaos sets this option itself; give --nproc and --servers before `--`"
            )));
        }
        if is_own {
            kolo_launch::check_program(&self.words)?;
        }
        let job = if is_own { None } else { Some(check_job(&self.words)?) };
        let divided = job.as_ref().is_some_and(Recipe::is_divided);
        let shared = job.as_ref().is_some_and(Recipe::is_shared);
        if divided && self.nodes > 1 {
            return Err(Failure::input(
                "--shard with --nodes 2 or more: all nodes are this machine here, so both owners of a part of the state may be on \
                 the node that dies; leave one of them out",
            ));
        }
        for (option, number) in [("--nproc", self.nproc), ("--nodes", self.nodes)] {
            if number == 0 {
                return Err(Failure::input(format!("{option} 0: it must be at least 1")));
            }
        }
        if self.nodes > 1 && self.servers > 0 {
            return Err(Failure::input("--servers goes with --nodes 1 here: leave one of them out"));
        }
        if self.cut_links && self.nodes == 1 {
            return Err(Failure::input(
                "--cut-links goes with --nodes 2 or more: one node has no other to be cut off from",
            ));
        }
        if self.disk_mb == Some(0) {
            return Err(Failure::input("--disk-mb 0: it must be at least 1"));
        }
        if self.seeds == 0 {
            return Err(Failure::input("--seeds 0: it must be at least 1"));
        }
        let Some(end) = self.seed.checked_add(self.seeds) else {
            return Err(Failure::input(format!(
                "--seed {}: the last seed, --seed + --seeds, is too large",
                self.seed
            )));
        };
        let program = match is_own {
            true => Program::Own(self.words),
            false => Program::Train(with_defaults(self.words, self.disk_mb.is_some())),
        };
        let limit = Duration::from_secs_f64(self.limit);
        // The launchers receive these signals as well. They end first; then the run's files are removed.
        let interrupted = Arc::default();
        for signal in [SIGINT, SIGTERM] {
            let caught = signal_hook::flag::register(signal, Arc::clone(&interrupted));
            caught.map_err(|e| Failure::work(format!("cannot catch signals: {e}")))?;
        }
        // The folder lives as long as the runs.
        let images = tempfile::tempdir().map_err(|e| Failure::work(format!("cannot make a folder: {e}")))?;
        let mut more = Vec::new();
        if let Program::Train(options) = &program {
            let samples = additions(reads_text(options)).to_string();
            let own = with_own_samples(options, images.path())?;
            more.extend(own.map(|program| (samples, program, divided, shared)));
            let states =
                Sharding::ALL.into_iter().skip(if divided || shared { Sharding::ALL.len() } else { 1 });
            more.extend(states.filter_map(|(state, _)| {
                let program = with_divided_state(options, state, self.nodes, self.servers)?;
                let shares = state == Sharding::Host.name();
                Some((format!("--shard {state}"), program, !shares, shares))
            }));
        }
        let Chaos { nodes, arbiter, nproc, servers, disk_mb: disk, cut_links, .. } = self;
        let (name, seeds) = (String::new(), self.seed..end);
        let job = ChaosJob {
            name,
            program,
            nodes,
            arbiter,
            nproc,
            servers,
            disk,
            cut_links,
            divided,
            shared,
            interrupted,
            limit,
        };
        let more = more.into_iter().map(|(name, program, divided, shared)| ChaosJob {
            name,
            program,
            divided,
            shared,
            ..job.clone()
        });
        chaos(&std::iter::once(job.clone()).chain(more).collect::<Vec<_>>(), seeds, self.json)
    }
}

/// Accepts the names of the arbiters.
fn arbiters() -> impl TypedValueParser<Value = &'static ArbiterKind> {
    let names = ARBITERS.iter().map(|kind| PossibleValue::new(kind.name).help(kind.summary));
    let named = |name: String| ARBITERS.iter().find(|kind| kind.name == name).unwrap_or(&ARBITERS[0]);
    PossibleValuesParser::new(names).map(named)
}
