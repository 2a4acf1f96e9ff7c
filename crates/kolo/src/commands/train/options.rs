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

/// Train a model on images with several workers.
#[derive(Args)]
#[command(after_help = tables())]
pub(crate) struct Train {
    #[command(flatten)]
    pub(in crate::commands) config: RecipeOptions,
    /// Micro-batches a worker accumulates before a step: shards = nproc × accumulate [default: 1]
    #[arg(long)]
    pub(super) accumulate: Option<usize>,
    /// Equal parts of every global batch. With the same number, any --nproc ends in the same bits [default:
    /// workers × accumulate, where nodes may come later the most workers that there may be]
    #[arg(long, conflicts_with = "accumulate")]
    pub(super) shards: Option<usize>,
    /// How the shards are divided among the workers, a weight for each, as 3,1. Any weights end in the same
    /// bits [default: equally]
    #[arg(long, value_name = "WEIGHTS", value_delimiter = ',', value_parser = parse_number)]
    pub(super) shares: Vec<f64>,
    /// What becomes of a worker that holds the others up: warn, rebalance (shards move away from it), drop
    /// (it leaves) [default: warn]
    #[arg(long)]
    pub(super) straggler: Option<String>,
    /// Make a worker slow, for trials: RANK:compute:MILLISECONDS or RANK:data:MILLISECONDS, for each shard
    #[arg(long, hide = true)]
    pub(in crate::commands) slow: Vec<Slowdown>,
    /// Scale the learning rate: --lr is meant for --base-batch and multiplied by global batch / base batch
    /// (linear) or by the root of that (sqrt) [default without a value: linear]
    #[arg(long, value_name = "RULE", num_args = 0..=1, default_missing_value = "linear")]
    pub(super) scale_lr: Option<ScalingRule>,
    /// Run folder; must not exist, unless --resume-or-start is given [default: runs/<number>-<model>-<data>]
    #[arg(long)]
    pub(in crate::commands) out: Option<PathBuf>,
    /// Continue the run in this folder from its newest good checkpoint. With --epochs the run becomes longer,
    /// and a schedule that falls to 0 is stretched
    #[arg(long, value_name = "RUN_FOLDER", conflicts_with_all = fixed_settings(), conflicts_with_all = ["out", "config_file", "set"], group = "continued")]
    pub(in crate::commands) resume: Option<PathBuf>,
    /// With --out, for jobs that are started again by the same command: continue the run in that folder from
    /// its newest good checkpoint, or start it where there is none
    #[arg(long, requires = "out", group = "continued")]
    pub(in crate::commands) resume_or_start: bool,
    /// With --resume or --resume-or-start: take the run folder from another process that writes it, or that
    /// cannot be asked because its host is gone. It writes nothing there any more, and ends
    #[arg(long, requires = "continued")]
    pub(in crate::commands) take_over: bool,
    /// With --resume or --resume-or-start: go on although the data, or what decides the order of its samples
    /// (batch_size, shards, seed and grow_batch in config.toml), is not what the checkpoint was written with.
    /// Epochs are then counted as if all steps so far had been over the new data
    #[arg(long, requires = "continued")]
    pub(in crate::commands) accept_changed_data: bool,
    /// Take the settings from this file, as the config.toml of a run, which repeats that run; options beside
    /// it win
    #[arg(long = "config", id = "config_file", value_name = "FILE")]
    pub(super) config_file: Option<PathBuf>,
    /// Set one key of config.toml, as rate.lr=0.2; may be repeated, and wins over options and --config
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) set: Vec<String>,
    /// Do not train, but find a learning rate: it grows from 1e-7 to 10 over so many steps, in place of the
    /// recipe's, until the loss diverges. The losses go to the run folder, with a picture [default without a
    /// value: 100, at least 10]
    #[arg(long, value_name = "STEPS", num_args = 0..=1, default_missing_value = "100")]
    #[arg(conflicts_with_all = ["resume", "resume_or_start", "steps"], value_parser = find_lr::steps)]
    pub(in crate::commands) find_lr: Option<u64>,
    /// Print the whole configuration as --config takes it, and train nothing
    #[arg(long)]
    pub(super) print_config: bool,
    /// Algorithm of the collectives [default: the quickest that keeps the bits]
    #[arg(long, value_parser = algorithms())]
    pub(in crate::commands) algorithm: Option<String>,
    #[command(flatten)]
    pub(super) live: LiveMetrics,
    #[command(flatten)]
    pub(in crate::commands) elastic: Elastic,
    #[command(flatten)]
    pub(in crate::commands) communication: Communication,
    /// Workers on this machine [default: 2, or what the configuration says]
    #[arg(long)]
    pub(in crate::commands) nproc: Option<usize>,
    /// Port at which the workers meet [default: a free one]
    #[arg(long)]
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

/// Options that a run that continues cannot change: all but the number of epochs and the limit of time.
fn fixed_settings() -> Vec<Id> {
    settings().into_iter().filter(|id| id != "epochs" && id != "max_hours").collect()
}
