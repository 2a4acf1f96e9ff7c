//! The options of `kolo train`.

use std::path::PathBuf;

use clap::{Args, Command, Id};
use kolo_burn_train::{LiveMetrics, Slowdown};
use kolo_ddp::rate::BatchScaling;
use kolo_ddp::table::parse_number;
use kolo_recipe::{Recipe, RecipeOptions};

use super::super::find_lr;
use super::tables::tables;
use crate::options::{Communication, Elastic, algorithms};

/// Train a model on images or text with several workers.
#[derive(Args)]
#[command(after_help = tables())]
pub(crate) struct Train {
    #[command(flatten)]
    pub(in crate::commands) config: RecipeOptions,
    /// Micro-batches that each worker accumulates before a step: shards = nproc × accumulate [default: 1]
    #[arg(long)]
    pub(super) accumulate: Option<usize>,
    /// Number of equal parts of each global batch. With the same number, any --nproc ends in the same bits
    /// [default: workers × accumulate; if nodes may join later, counted with all of them]
    #[arg(long, conflicts_with = "accumulate")]
    pub(super) shards: Option<usize>,
    /// Weights by which Kolo divides the shards among the workers, one for each, such as 3,1. Any weights
    /// end in the same bits [default: equal weights]
    #[arg(long, value_name = "WEIGHTS", value_delimiter = ',', value_parser = parse_number)]
    pub(super) shares: Vec<f64>,
    /// What Kolo does about a worker that delays the others: warn, rebalance (move shards to faster
    /// workers) or drop (continue without it) [default: warn]
    #[arg(long)]
    pub(super) straggler: Option<String>,
    /// Make a worker slow, for trials: RANK:compute:MILLISECONDS or RANK:data:MILLISECONDS, for each shard
    #[arg(long, hide = true)]
    pub(in crate::commands) slow: Vec<Slowdown>,
    /// Multiply --lr by global batch / --base-batch (linear), or by the square root of that (sqrt) [default
    /// without a value: linear]
    #[arg(long, value_name = "RULE", num_args = 0..=1, default_missing_value = "linear")]
    pub(super) scale_lr: Option<ScalingRule>,
    /// Run folder. It must be new or empty, except with --resume-or-start [default:
    /// runs/<number>-<model>-<data>]
    #[arg(long)]
    pub(in crate::commands) out: Option<PathBuf>,
    /// Continue the run in this folder from its newest good checkpoint. --epochs, or --steps if the run has
    /// that limit, makes it longer; --epochs stretches a schedule that falls to 0. --offload gives another
    /// folder, --keep-checkpoints another number
    #[arg(long, value_name = "RUN_FOLDER", conflicts_with_all = fixed_settings(), conflicts_with_all = ["out", "config_file", "set"], group = "continued")]
    pub(in crate::commands) resume: Option<PathBuf>,
    /// Continue the run in the folder of --out from its newest good checkpoint, or start it if there is
    /// none. For jobs that a scheduler starts again with the same command
    #[arg(long, requires = "out", group = "continued")]
    pub(in crate::commands) resume_or_start: bool,
    /// With --resume or --resume-or-start: take the run folder from another process that writes it, or
    /// whose host is gone. That process stops writing and ends
    #[arg(long, requires = "continued")]
    pub(in crate::commands) take_over: bool,
    /// With --resume or --resume-or-start: continue although the data or the order of its samples has
    /// changed since the checkpoint. In config.toml, batch_size, shards, seed and grow_batch decide that
    /// order. Kolo then counts epochs as if all earlier steps had used the new data
    #[arg(long, requires = "continued")]
    pub(in crate::commands) accept_changed_data: bool,
    /// Read the settings from this file. The config.toml of a run repeats that run. Other options on the
    /// command line override the file
    #[arg(long = "config", id = "config_file", value_name = "FILE")]
    pub(super) config_file: Option<PathBuf>,
    /// Set one key of config.toml, such as rate.lr=0.2. Overrides options and --config; you may repeat it
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) set: Vec<String>,
    /// Find a learning rate instead of training: it grows from 1e-7 to 10 over STEPS steps, until the loss
    /// diverges. Kolo writes the losses and a picture to the run folder [default without a value: 100; at
    /// least 10]
    #[arg(long, value_name = "STEPS", num_args = 0..=1, default_missing_value = "100")]
    #[arg(conflicts_with_all = ["resume", "resume_or_start", "steps"], value_parser = find_lr::steps)]
    pub(in crate::commands) find_lr: Option<u64>,
    /// Print the whole configuration, in the format of --config, and do not train
    #[arg(long)]
    pub(super) print_config: bool,
    /// Algorithm of the collectives [default: the fastest that keeps the bits]
    #[arg(long, value_parser = algorithms())]
    pub(in crate::commands) algorithm: Option<String>,
    #[command(flatten)]
    pub(super) live: LiveMetrics,
    /// Print JSON, an object per line: progress, messages and the result. Short for --log-format json
    #[arg(long, conflicts_with_all = ["dashboard", "log_format"])]
    pub(in crate::commands) json: bool,
    #[command(flatten)]
    pub(in crate::commands) elastic: Elastic,
    #[command(flatten)]
    pub(in crate::commands) communication: Communication,
    /// Workers on this machine [default: 2, or the number in the configuration]
    #[arg(long)]
    pub(in crate::commands) nproc: Option<usize>,
    /// Port at which the workers meet [default: a free port]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(in crate::commands) master_port: Option<u16>,
}

/// Rules of `--scale-lr`.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(super) enum ScalingRule {
    Linear,
    Sqrt,
}

impl From<ScalingRule> for BatchScaling {
    fn from(rule: ScalingRule) -> Self {
        match rule {
            ScalingRule::Linear => BatchScaling::Linear,
            ScalingRule::Sqrt => BatchScaling::Sqrt,
        }
    }
}

/// Options that decide what a run is. A configuration file sets all of them.
pub(in crate::commands) fn settings() -> Vec<Id> {
    let config = Recipe::augment_args(Command::new("settings"));
    let others = ["accumulate", "shards", "scale_lr"];
    config.get_arguments().map(|option| option.get_id().clone()).chain(others.map(Id::from)).collect()
}

/// Options that a run that continues cannot change: all but the ends of the run, and a place of its host.
fn fixed_settings() -> Vec<Id> {
    settings()
        .into_iter()
        .filter(|id| !["epochs", "steps", "max_hours", "keep_checkpoints", "offload"].contains(&id.as_str()))
        .collect()
}
