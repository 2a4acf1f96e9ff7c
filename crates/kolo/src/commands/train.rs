//! `kolo train`: checks the configuration, prepares the run folder, starts the workers.

use std::path::PathBuf;

use clap::Args;
use kolo_comm::env::{self, is_worker};
use kolo_data::{self as data, DATASETS};
use kolo_ddp::optimizer::OPTIMIZERS;
use kolo_ddp::straggler::Policy;
use kolo_train::models::MODELS;
use kolo_train::{KEEP, RateConfig, RunFolder, SCHEDULES, Seat, Slow, TrainConfig};

use super::elastic::Elastic;
use super::run_again;
use super::table_options::{self, TableOptions};
use super::talk::{Talk, algorithms};
use crate::fail::Failure;

/// By this variable the workers learn of the folder that their parent has made.
const RUN_FOLDER: &str = "KOLO_RUN_FOLDER";

/// Train a model on images with several workers.
#[derive(Args)]
#[command(after_help = tables())]
pub(crate) struct Train {
    /// Network (see below)
    #[arg(long, default_value = "small")]
    model: String,
    /// Data set (see below)
    #[arg(long, default_value = "fashion-mnist-small")]
    data: String,
    /// Train on the images as they are, without random crop and flip
    #[arg(long)]
    no_augment: bool,
    /// Passes over the training data
    #[arg(long, default_value_t = 8)]
    epochs: usize,
    /// End after that many steps
    #[arg(long)]
    pub(super) steps: Option<u64>,
    /// Images a shard (a micro-batch of one worker)
    #[arg(long, default_value_t = 32)]
    batch_size: usize,
    /// Micro-batches a worker accumulates before a step: shards = nproc × accumulate
    #[arg(long, default_value_t = 1)]
    accumulate: usize,
    /// Equal parts of every global batch. With the same number, any --nproc ends in the same bits [default: nproc × accumulate]
    #[arg(long, conflicts_with = "accumulate")]
    shards: Option<usize>,
    /// How the shards are divided among the workers, a weight for each, as 3,1. Any weights end in the same bits [default: equally]
    #[arg(long, value_name = "WEIGHTS", value_delimiter = ',')]
    shares: Vec<f64>,
    /// What becomes of a worker that holds the others up: warn, rebalance (shards move away from it), drop (it leaves) [default: warn]
    #[arg(long)]
    straggler: Option<String>,
    /// Make a worker slow, for trials: RANK:compute:MILLISECONDS or RANK:data:MILLISECONDS, for each shard
    #[arg(long, hide = true)]
    slow: Option<Slow>,
    #[command(flatten)]
    tables: TableOptions,
    /// Learning rate
    #[arg(long, default_value_t = 0.1)]
    lr: f64,
    /// Apply the linear scaling rule: --lr is meant for --base-batch and multiplied by global batch / base batch
    #[arg(long, requires = "base_batch")]
    scale_lr: bool,
    /// The global batch that --lr is meant for
    #[arg(long)]
    base_batch: Option<usize>,
    /// How the learning rate falls: constant, step, cosine
    #[arg(long, default_value = "cosine")]
    schedule: String,
    /// Steps over which the learning rate rises
    #[arg(long, default_value_t = 100)]
    warmup_steps: u64,
    /// Epochs between the cuts of --schedule step
    #[arg(long, default_value_t = 30)]
    lr_step_epochs: usize,
    /// What a cut of --schedule step leaves
    #[arg(long, default_value_t = 0.1)]
    lr_factor: f64,
    /// Largest bucket in MiB; the first and the last one have at most 1 [default: 25, over sockets 4]
    #[arg(long)]
    pub(super) bucket_cap_mb: Option<f64>,
    /// Seed of weights, order and augmentation
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Share of the features before the last layer that a training step drops
    #[arg(long, default_value_t = 0.0)]
    dropout: f64,
    /// Batch normalisation: per-shard (by the shard's mean and variance), sync (by the global batch's), both the same for any
    /// --nproc, or local (as per-shard, with running statistics of each worker's own)
    #[arg(long, default_value = "per-shard")]
    batch_norm: String,
    /// Steps between two comparisons of all workers' weights; 0: never
    #[arg(long, default_value_t = 100)]
    verify_every: u64,
    /// Epochs between checkpoints
    #[arg(long, default_value_t = 1)]
    checkpoint_epochs: usize,
    /// Also write a checkpoint every so many steps
    #[arg(long, value_name = "STEPS")]
    checkpoint_steps: Option<u64>,
    /// Checkpoints to keep; older ones are removed
    #[arg(long, value_name = "CHECKPOINTS", default_value_t = KEEP)]
    keep_checkpoints: usize,
    /// Run folder; must not exist [default: runs/<number>-<model>-<data>]
    #[arg(long)]
    pub(super) out: Option<PathBuf>,
    /// Continue the run in this folder from its newest good checkpoint
    #[arg(long, value_name = "RUN_FOLDER", conflicts_with_all = SETTINGS, conflicts_with_all = ["out", "config"])]
    pub(super) resume: Option<PathBuf>,
    /// Repeat a run: take all settings from its config.toml
    #[arg(long, value_name = "FILE", conflicts_with_all = SETTINGS)]
    config: Option<PathBuf>,
    /// Algorithm of the collectives [default: the quickest that keeps the bits]
    #[arg(long, value_parser = algorithms())]
    pub(super) algorithm: Option<String>,
    #[command(flatten)]
    elastic: Elastic,
    #[command(flatten)]
    pub(super) talk: Talk,
    /// Workers on this machine [default: 2, or what the configuration says]
    #[arg(long)]
    pub(super) nproc: Option<usize>,
    /// Port at which the workers meet [default: a free one]
    #[arg(long)]
    pub(super) master_port: Option<u16>,
}

/// What a configuration file decides.
pub(super) const SETTINGS: [&str; 25] = [
    "model",
    "data",
    "no_augment",
    "epochs",
    "steps",
    "batch_size",
    "accumulate",
    "shards",
    "optimizer",
    "lr",
    "scale_lr",
    "base_batch",
    "schedule",
    "warmup_steps",
    "lr_step_epochs",
    "lr_factor",
    table_options::SETTINGS,
    "checkpoint_epochs",
    "checkpoint_steps",
    "keep_checkpoints",
    "bucket_cap_mb",
    "seed",
    "dropout",
    "batch_norm",
    "verify_every",
];

/// Says how to go on with what there is.
fn advise(failure: Failure, folder: &RunFolder) -> Failure {
    match folder.newest_checkpoint() {
        Ok(found) if !folder.is_complete() => {
            let (path, step) = (folder.path().display(), found.step);
            failure.advise(format!("`kolo train --resume {path}` goes on after step {step}"))
        }
        _ => failure,
    }
}

/// Workers when nobody says how many.
const NPROC: usize = 2;

fn tables() -> String {
    let mut text = String::from("Models:\n");
    MODELS.iter().for_each(|model| text += &format!("  {:24} {}\n", model.name, model.about));
    text += "\nData:\n";
    DATASETS.iter().for_each(|data| text += &format!("  {:24} {}\n", data.usage(), data.about));
    text += "\nOptimizers:\n";
    OPTIMIZERS.iter().for_each(|optimizer| text += &format!("  {:24} {}\n", optimizer.name, optimizer.about));
    text + &format!("\nSchedules: {}", SCHEDULES.join(", "))
}

impl Train {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if is_worker() {
            return self.work().map_err(Failure::of_worker);
        }
        let config = self.settings()?;
        config.check_shares()?;
        // Mistakes in the data should be told once, before any worker starts.
        data::open(&config.data).map_err(Failure::input)?;
        let folder = self.folder(&config)?;
        if self.resume.is_some() {
            folder.newest_checkpoint()?;
        }
        let mut env = self.talk.environment(self.algorithm.as_ref());
        env.push((RUN_FOLDER.to_string(), folder.path().as_os_str().to_owned()));
        let result = run_again(config.nproc, self.master_port, env, &self.elastic);
        if result.is_err() && self.resume.is_none() {
            folder.discard_unused();
        }
        result.map_err(|failure| advise(failure, &folder))
    }

    /// As one of the workers. All of them were started with the same arguments.
    fn work(&self) -> Result<(), Failure> {
        let mut config = self.settings()?;
        let algorithm = self.algorithm.as_deref();
        if let Some(mut member) = self.talk.member(algorithm)? {
            let folder = match std::env::var_os(RUN_FOLDER) {
                Some(path) => RunFolder::at(path.into()),
                None => {
                    self.fit(&mut config, started()?)?;
                    self.claim(&config, &member.job()?)?
                }
            };
            return Ok(kolo_train::train(
                Seat::Member(member),
                &config,
                Some(folder),
                self.resume.is_some(),
            )?);
        }
        if config.straggler()? == Policy::Drop {
            return Err(Failure::input(
                "--straggler drop: these workers cannot go on with fewer, because `kolo train` has not started them or another \
                 backend than Kolo's own connects them; use --straggler rebalance, which leaves a slow one less to do",
            ));
        }
        let group = self.talk.group(algorithm)?;
        self.fit(&mut config, group.world_size())?;
        let folder = match std::env::var_os(RUN_FOLDER) {
            Some(path) => Some(RunFolder::at(path.into())),
            None if group.rank().0 == 0 => Some(self.folder(&config)?),
            None => self.resume.clone().map(RunFolder::at),
        };
        Ok(kolo_train::train(Seat::Fixed(group), &config, folder, self.resume.is_some())?)
    }

    /// For as many workers as another launcher has started.
    fn fit(&self, config: &mut TrainConfig, workers: usize) -> Result<(), Failure> {
        if self.nproc.is_none() && self.shards.is_none() && self.resume.is_none() && self.config.is_none() {
            config.shards = workers * self.accumulate;
        }
        match self.shares.is_empty() {
            true => config.run_by(Some(workers)),
            false => config.nproc = workers,
        }
        Ok(config.check_shares()?)
    }

    /// The run folder of a job whose workers have nobody who makes it for them: the first that comes does.
    fn claim(&self, config: &TrainConfig, job: &str) -> Result<RunFolder, kolo_train::Error> {
        match (&self.resume, &self.out) {
            (Some(path), _) => Ok(RunFolder::at(path.clone())),
            (None, Some(path)) => RunFolder::claim(path.clone(), config, job),
            (None, None) => RunFolder::claim_numbered(config, job),
        }
    }

    fn folder(&self, config: &TrainConfig) -> Result<RunFolder, kolo_train::Error> {
        match (&self.resume, &self.out) {
            (Some(path), _) => Ok(RunFolder::at(path.clone())),
            (None, Some(path)) => RunFolder::create(path.clone(), config),
            (None, None) => RunFolder::create_numbered(config),
        }
    }

    pub(super) fn settings(&self) -> Result<TrainConfig, Failure> {
        if let Some(folder) = &self.resume {
            return self.adapted(RunFolder::at(folder.clone()).config()?);
        }
        if let Some(path) = &self.config {
            return self.adapted(TrainConfig::read(path)?);
        }
        let nproc = self.nproc.unwrap_or(NPROC);
        if self.accumulate == 0 {
            return Err(Failure::input("--accumulate 0: it must be at least 1"));
        }
        let config = TrainConfig {
            kolo: env!("CARGO_PKG_VERSION").into(),
            model: self.model.clone(),
            data: self.data.clone(),
            augment: !self.no_augment,
            epochs: self.epochs,
            steps: self.steps,
            seed: self.seed,
            batch_size: self.batch_size,
            shards: self.shards.unwrap_or(nproc * self.accumulate),
            nproc,
            shares: None,
            straggler: "warn".into(),
            min: 1,
            slow: None,
            threads: 1,
            bucket_cap_mb: self.bucket_cap_mb,
            dropout: self.dropout,
            batch_norm: self.batch_norm.clone(),
            verify_every: self.verify_every,
            checkpoint_epochs: self.checkpoint_epochs,
            checkpoint_steps: self.checkpoint_steps,
            keep_checkpoints: self.keep_checkpoints,
            optimizer: self.tables.optimizer()?,
            transforms: self.tables.transforms()?,
            rate: RateConfig {
                lr: self.lr,
                base_batch: self.base_batch.filter(|_| self.scale_lr),
                schedule: self.schedule.clone(),
                warmup_steps: self.warmup_steps,
                step_epochs: self.lr_step_epochs,
                step_factor: self.lr_factor,
            },
        };
        self.adapted(config)
    }

    /// What does not change the result can be said anew each time.
    fn adapted(&self, mut config: TrainConfig) -> Result<TrainConfig, Failure> {
        config.run_by(self.nproc);
        if !self.shares.is_empty() {
            config.shares = Some(self.shares.clone());
        }
        if let Some(straggler) = &self.straggler {
            config.straggler.clone_from(straggler);
        }
        config.min = self.elastic.min();
        config.slow.clone_from(&self.slow);
        config.check()?;
        Ok(config)
    }
}

/// Workers with which the job has begun.
fn started() -> Result<usize, Failure> {
    let text = std::env::var(env::WORLD_SIZE).unwrap_or_default();
    let number = text.parse().ok().filter(|workers| *workers > 0);
    number.ok_or_else(|| {
        Failure::input(format!("{} is `{text}`; it must be a number of workers", env::WORLD_SIZE))
    })
}
