//! `kolo train`: checks the configuration, prepares the run folder, starts the workers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Command, Id, value_parser};
use kolo::Failure;
use kolo_burn_train::{
    Job, LOG_FORMAT, LiveMetrics, LogFormat, Membership, RUN_FOLDER, RangeTest, SampleCounts, Slowdown,
    check_resume, replaces_another,
};
use kolo_comm::env::{self, is_worker};
use kolo_comm::schedule::ALGORITHMS;
use kolo_comm::{Op, Rank};
use kolo_dashboard::{NoTerminal, SCREEN, Screen};
use kolo_data::{self as data, ImageDataSet, Part};
use kolo_ddp::rate::BatchScaling;
use kolo_ddp::straggler::Policy;
use kolo_ddp::table::parse_number;
use kolo_launch::{FailureKind, Messages};
use kolo_models as models;
use kolo_program::output::{note, say, warn};
use kolo_recipe::{Plan, Recipe, RecipeOptions, RunFolder, shell_quoted};
use kolo_weights::WeightsFile;

use super::find_lr;
use super::train_tables::tables;
use crate::options::{Communication, Elastic, algorithms};
use crate::start_workers::{check_lone_worker, start_workers};

/// Train a model on images with several workers.
#[derive(Args)]
#[command(after_help = tables())]
pub(crate) struct Train {
    #[command(flatten)]
    pub(super) config: RecipeOptions,
    /// Micro-batches a worker accumulates before a step: shards = nproc × accumulate [default: 1]
    #[arg(long)]
    accumulate: Option<usize>,
    /// Equal parts of every global batch. With the same number, any --nproc ends in the same bits [default:
    /// workers × accumulate, where nodes may come later the most workers that there may be]
    #[arg(long, conflicts_with = "accumulate")]
    shards: Option<usize>,
    /// How the shards are divided among the workers, a weight for each, as 3,1. Any weights end in the same
    /// bits [default: equally]
    #[arg(long, value_name = "WEIGHTS", value_delimiter = ',', value_parser = parse_number)]
    shares: Vec<f64>,
    /// What becomes of a worker that holds the others up: warn, rebalance (shards move away from it), drop
    /// (it leaves) [default: warn]
    #[arg(long)]
    straggler: Option<String>,
    /// Make a worker slow, for trials: RANK:compute:MILLISECONDS or RANK:data:MILLISECONDS, for each shard
    #[arg(long, hide = true)]
    pub(super) slow: Vec<Slowdown>,
    /// Scale the learning rate: --lr is meant for --base-batch and multiplied by global batch / base batch
    /// (linear) or by the root of that (sqrt) [default without a value: linear]
    #[arg(long, value_name = "RULE", num_args = 0..=1, default_missing_value = "linear")]
    scale_lr: Option<ScalingRule>,
    /// Run folder; must not exist, unless --resume-or-start is given [default: runs/<number>-<model>-<data>]
    #[arg(long)]
    pub(super) out: Option<PathBuf>,
    /// Continue the run in this folder from its newest good checkpoint. With --epochs the run becomes longer,
    /// and a schedule that falls to 0 is stretched
    #[arg(long, value_name = "RUN_FOLDER", conflicts_with_all = fixed_settings(), conflicts_with_all = ["out", "config_file", "set"], group = "continued")]
    pub(super) resume: Option<PathBuf>,
    /// With --out, for jobs that are started again by the same command: continue the run in that folder from
    /// its newest good checkpoint, or start it where there is none
    #[arg(long, requires = "out", group = "continued")]
    pub(super) resume_or_start: bool,
    /// With --resume or --resume-or-start: take the run folder from another process that writes it, or that
    /// cannot be asked because its host is gone. It writes nothing there any more, and ends
    #[arg(long, requires = "continued")]
    pub(super) take_over: bool,
    /// With --resume or --resume-or-start: go on although the data, or what decides the order of its samples
    /// (batch_size, shards, seed and grow_batch in config.toml), is not what the checkpoint was written with.
    /// Epochs are then counted as if all steps so far had been over the new data
    #[arg(long, requires = "continued")]
    pub(super) accept_changed_data: bool,
    /// Take the settings from this file, as the config.toml of a run, which repeats that run; options beside
    /// it win
    #[arg(long = "config", id = "config_file", value_name = "FILE")]
    config_file: Option<PathBuf>,
    /// Set one key of config.toml, as rate.lr=0.2; may be repeated, and wins over options and --config
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Do not train, but find a learning rate: it grows from 1e-7 to 10 over so many steps, in place of the
    /// recipe's, until the loss diverges. The losses go to the run folder, with a picture [default without a
    /// value: 100]
    #[arg(long, value_name = "STEPS", num_args = 0..=1, default_missing_value = "100")]
    #[arg(conflicts_with_all = ["resume", "resume_or_start"], value_parser = value_parser!(u64).range(10..))]
    pub(super) find_lr: Option<u64>,
    /// Print the whole configuration as --config takes it, and train nothing
    #[arg(long)]
    print_config: bool,
    /// Algorithm of the collectives [default: the quickest that keeps the bits]
    #[arg(long, value_parser = algorithms())]
    pub(super) algorithm: Option<String>,
    #[command(flatten)]
    live: LiveMetrics,
    #[command(flatten)]
    pub(super) elastic: Elastic,
    #[command(flatten)]
    pub(super) communication: Communication,
    /// Workers on this machine [default: 2, or what the configuration says]
    #[arg(long)]
    pub(super) nproc: Option<usize>,
    /// Port at which the workers meet [default: a free one]
    #[arg(long)]
    pub(super) master_port: Option<u16>,
}

/// Data set of a run that names none: a part of the program.
const USUAL_DATA: &str = "fashion-mnist-small";

/// Rules of `--scale-lr`.
#[derive(Clone, Copy, clap::ValueEnum)]
enum ScalingRule {
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
pub(super) fn settings() -> Vec<Id> {
    let config = Recipe::augment_args(Command::new("settings"));
    let others = ["accumulate", "shards", "scale_lr"];
    config.get_arguments().map(|option| option.get_id().clone()).chain(others.map(Id::from)).collect()
}

/// Options that a run that goes on cannot change: all but the number of epochs.
fn fixed_settings() -> Vec<Id> {
    settings().into_iter().filter(|id| id != "epochs").collect()
}

/// Adds the command that resumes the run to a failure, if there is a checkpoint, that command helps, and no
/// other process has taken the run over.
fn advise(failure: Failure, folder: &RunFolder) -> Failure {
    match folder.newest_checkpoint() {
        Ok(found) if !folder.is_complete() && failure.kind().is_none() && !folder.is_written() => {
            let (path, step) = (shell_quoted(folder.path()), found.step);
            failure.advise(format!("`kolo train --resume {path}` goes on after step {step}"))
        }
        _ => failure,
    }
}

impl Train {
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        if self.print_config {
            let config = self.configuration()?;
            models::find(&config.model)?;
            say!("{}", config.to_toml()?.trim_end());
            return Ok(());
        }
        if is_worker() {
            check_lone_worker(self.nproc)?;
            self.out = folder_of_launcher().or(self.out);
            self.communication.for_tuning = self.configuration()?.tune;
            return self.work();
        }
        let config = self.configuration()?;
        self.refuse(&config)?;
        // Mistakes in the data are reported once, before any worker starts.
        let images = config.open_data().map_err(Failure::input)?;
        self.refuse_images(&config, &*images)?;
        config.plan(images.samples(Part::Train))?;
        surprises(&config, images.samples(Part::Train)).iter().for_each(|surprise| warn(surprise));
        let folder = self.folder(&config)?;
        if self.may_continue() {
            folder.wait_until_free(self.take_over)?;
        }
        if self.resumes(&folder) {
            check_resume(&folder, &config, &*images, self.accept_changed_data)?;
            self.extend(&folder, &config)?;
        }
        let mut env = self.environment();
        env.push((RUN_FOLDER.to_string(), folder.path().as_os_str().to_owned()));
        let messages = match self.live.log_format {
            LogFormat::Text => Messages::Text,
            LogFormat::Json => {
                env.push((LOG_FORMAT.to_string(), "json".into()));
                Messages::Json
            }
        };
        if !self.live.dashboard && self.live.log_format == LogFormat::Text {
            note(&format!("{}: {}", config.data, SampleCounts::of(&*images)));
        }
        if let Some(steps) = self.find_lr {
            note(&format!(
                "--find-lr {steps}: the rate grows from 1e-7 to 10 in place of the recipe's rates and steps; nothing is evaluated or saved"
            ));
        }
        let screen = self.live.dashboard.then(Screen::hold).transpose().map_err(no_dashboard)?;
        env.extend(screen.as_ref().map(|screen| (SCREEN.to_string(), screen.path().as_os_str().to_owned())));
        let result = start_workers(config.nproc, self.master_port, env, &self.elastic, messages);
        // The dashboard's screen ends before further messages.
        drop(screen);
        if let (Err(failure), None) = (&result, &self.resume) {
            match failure.kind() {
                Some(FailureKind::WrongInput) => folder.discard_without_checkpoint(),
                _ => folder.discard_unused(),
            }
        }
        if let Some(file) = &self.live.trace {
            show_timeline(file);
        }
        result.map_err(|failure| advise(failure, &folder))
    }

    /// Refuses wrong options before any worker starts.
    pub(super) fn refuse(&self, config: &Recipe) -> Result<(), Failure> {
        models::find(&config.model)?;
        config.check_shares()?;
        let is_stale = config.sync.mode.staleness_bound().is_some();
        if is_stale && (self.elastic.min.is_some() || self.elastic.max_restarts.is_some()) {
            return Err(Failure::input(format!(
                "--min and --max-restarts: with --sync {} every worker and server has what no other one has, so the job ends with the \
                 first that dies, and --resume goes on; leave these options out",
                config.sync.mode
            )));
        }
        if !is_worker() {
            config.sync.check_servers(self.elastic.servers)?;
        }
        self.check_tune(config)?;
        if let Some(file) = config.init.as_ref().filter(|_| self.resume.is_none()) {
            WeightsFile::read(file)?;
        }
        if let Some(address) = &self.live.metrics_addr {
            address.check()?;
        }
        if self.live.dashboard {
            Screen::check().map_err(no_dashboard)?;
        }
        if let Some(file) = &self.live.trace {
            kolo_trace::check_free(file).map_err(|error| Failure::input(format!("--trace: {error}")))?;
        }
        Ok(())
    }

    /// Refuses images or options that do not fit the model.
    pub(super) fn refuse_images(&self, config: &Recipe, images: &dyn ImageDataSet) -> Result<(), Failure> {
        config.check_samples(images.samples(Part::Train))?;
        Ok(models::find(&config.model)?.check(config, images.shape())?)
    }

    /// Environment of the workers that this command starts.
    pub(super) fn environment(&self) -> Vec<(String, OsString)> {
        self.communication.environment(self.algorithm.as_ref())
    }

    /// Refuses `--tune` with algorithms whose order of summation depends on the cuts.
    fn check_tune(&self, config: &Recipe) -> Result<(), Failure> {
        let asked = ALGORITHMS.iter().find(|entry| Some(entry.name) == self.algorithm.as_deref());
        match asked.filter(|algorithm| config.tune && !algorithm.keeps_tree) {
            Some(algorithm) => Err(Failure::input(format!(
                "--tune with --algorithm {}: it adds in an order that depends on how sums are cut, so the bits would change; leave \
                 out one of the two",
                algorithm.name
            ))),
            None => Ok(()),
        }
    }

    fn work(&self) -> Result<(), Failure> {
        let mut config = self.configuration()?;
        // Checked before the run folder exists, which would stand in the way of the next try.
        models::find(&config.model)?;
        self.refuse_images(&config, &*config.open_data().map_err(Failure::input)?)?;
        let algorithm = self.algorithm.as_deref();
        // With stale synchronization the group stays fixed: a worker that dies takes its pushes along.
        let member = match config.sync.mode.staleness_bound() {
            Some(_) => None,
            None => self.communication.member(algorithm)?,
        };
        if let Some(mut member) = member {
            // Workers that join later use the number at the start too: all need the same recipe.
            self.fit(&mut config, started()?)?;
            let folder = match made_folder() {
                Some(folder) => folder,
                None if replaces_another() => {
                    let path = folder_of_launcher().or(self.resume.clone()).or(self.out.clone());
                    RunFolder::of_running_job(path, &member.job_id()?)?
                }
                None => {
                    let folder = self.claim(&config, &member.job_id()?)?;
                    self.extend(&folder, &config)?;
                    folder
                }
            };
            return self.train(config, Membership::Elastic(member), Some(folder));
        }
        if config.straggler()? == Policy::Drop {
            return Err(Failure::input(
                "--straggler drop: these workers cannot go on with fewer, because `kolo train` has not \
                 started them, another backend than Kolo's own connects them, or --reduction keeps \
                 residuals with each of them; use --straggler rebalance, which leaves a slow one less to do",
            ));
        }
        let group = self.communication.group(algorithm)?;
        let mut servers = [i32::from(group.is_server())];
        group.all_reduce(&mut servers, Op::Sum)?;
        self.fit(&mut config, group.world_size().saturating_sub(servers[0] as usize))?;
        let folder = match made_folder() {
            Some(folder) => Some(folder),
            None if group.rank().0 == 0 => {
                let folder = self.folder(&config)?;
                self.extend(&folder, &config)?;
                Some(folder)
            }
            // Rank 0 makes the folder.
            None => {
                let earlier = self.resume.clone().or(self.out.clone().filter(|_| self.resume_or_start));
                folder_of_launcher().or(earlier).map(RunFolder::at)
            }
        };
        self.train(config, Membership::Fixed(group), folder)
    }

    fn train(
        &self,
        config: Recipe,
        membership: Membership,
        folder: Option<RunFolder>,
    ) -> Result<(), Failure> {
        let (model, data) = (models::find(&config.model)?, config.open_data().map_err(Failure::input)?);
        let mut resume = folder.as_ref().is_some_and(|folder| self.resumes(folder));
        if let Membership::Fixed(group) = &membership {
            // Other ranks may not see the checkpoints yet.
            resume = group.broadcast_value(resume, Rank(0))?;
        }
        // `kolo train` adds the advice for the workers that it starts.
        let by_hand = matches!(membership, Membership::Fixed(_)) && folder_of_launcher().is_none();
        let advised = folder.clone().filter(|_| by_hand);
        let range_test = self.find_lr.map(RangeTest::new);
        let place = folder.as_ref().map(|folder| folder.path().to_owned());
        let job = Job {
            // Nothing of a range test may be taken for a trained model.
            folder: folder.filter(|_| range_test.is_none()),
            resume,
            range_test: range_test.clone(),
            take_over: self.take_over,
            accept_changed_data: self.accept_changed_data,
            min_workers: self.elastic.min(),
            slowdowns: self.slow.clone(),
            live: self.live.clone(),
            stop_on: self.elastic.stop_on.clone(),
            ..Job::new(config)
        };
        let trained = model.train(job, data, membership).map_err(Failure::from);
        trained.map(drop).map_err(|failure| match advised {
            Some(folder) => advise(failure, &folder),
            None => failure,
        })?;
        match range_test.zip(place) {
            Some((test, place)) => find_lr::show(&test, &place),
            None => Ok(()),
        }
    }

    /// Fits the configuration to the workers that another launcher started, and to those it may start if
    /// nodes come later.
    pub(super) fn fit(&self, config: &mut Recipe, workers: usize) -> Result<(), Failure> {
        self.fit_to(config, workers, env::most_workers()?.unwrap_or(workers))
    }

    /// Like [`Train::fit`], for at most `most` workers. The number of shards follows `most`: it decides the
    /// bits, is recorded with the run, and so cannot follow the present workers.
    fn fit_to(&self, config: &mut Recipe, workers: usize, most: usize) -> Result<(), Failure> {
        if self.nproc.is_none()
            && self.shards.is_none()
            && self.resume.is_none()
            && self.config_file.is_none()
            && !self.sets_shards()
        {
            config.shards = self.shards_of(workers.max(most))?;
        }
        if most > workers.max(config.shards) {
            log::warn!(
                "{most} workers may come, and there are {} shards: the others will have nothing to do; give --shards {most} \
                 to a run that begins",
                config.shards
            );
        }
        match self.shares.is_empty() {
            true => config.run_by(Some(workers)),
            false => config.nproc = workers,
        }
        Ok(config.check_shares()?)
    }

    /// Returns the run folder of a job that another launcher started. Its first worker makes the folder.
    fn claim(&self, config: &Recipe, job: &str) -> Result<RunFolder, kolo_recipe::Error> {
        match (&self.resume, &self.out) {
            (Some(path), _) => Ok(RunFolder::at(path.clone())),
            (None, Some(path)) if self.resume_or_start => {
                RunFolder::create_or_continue(path.clone(), config, Some(job))
            }
            (None, Some(path)) => RunFolder::claim(path.clone(), config, job),
            (None, None) => RunFolder::claim_numbered(config, job),
        }
    }

    fn folder(&self, config: &Recipe) -> Result<RunFolder, kolo_recipe::Error> {
        match (&self.resume, &self.out) {
            (Some(path), _) => Ok(RunFolder::at(path.clone())),
            (None, Some(path)) if self.resume_or_start => {
                RunFolder::create_or_continue(path.clone(), config, None)
            }
            (None, Some(path)) => RunFolder::create(path.clone(), config),
            (None, None) => RunFolder::create_numbered(config),
        }
    }

    /// True if the folder may hold an earlier part of the run.
    pub(super) fn may_continue(&self) -> bool {
        self.resume.is_some() || self.resume_or_start
    }

    pub(super) fn resumes(&self, folder: &RunFolder) -> bool {
        self.resume.is_some() || self.resume_or_start && folder.has_checkpoints()
    }

    pub(super) fn configuration(&self) -> Result<Recipe, Failure> {
        if let Some(folder) = &self.resume {
            let config = RunFolder::at(folder.clone()).config()?;
            return self.adapted(self.longer(config)?);
        }
        if let Some(path) = &self.config_file {
            // A run folder stands for its configuration.
            let inside = path.join("config.toml");
            let file = Recipe::read(if inside.is_file() { &inside } else { path })?;
            let mut config = self.config.over(&file)?;
            self.divide(&mut config)?;
            return self.adapted(config);
        }
        let mut config = self.config.recipe.clone();
        if let (Some(batch), None) = (config.rate.base_batch, self.scale_lr) {
            return Err(Failure::input(format!(
                "--base-batch {batch}: add --scale-lr, which says how the learning rate follows the batch, or leave it out"
            )));
        }
        config.nproc = self.nproc.unwrap_or(config.nproc);
        config.shards = self.shards_of(config.nproc)?;
        self.divide(&mut config)?;
        self.adapted(config)
    }

    /// Applies the options that set the shards of a step and the rule that scales the learning rate to them.
    fn divide(&self, config: &mut Recipe) -> Result<(), Failure> {
        if self.accumulate.is_some() {
            config.shards = self.shards_of(self.nproc.unwrap_or(config.nproc))?;
        }
        config.shards = self.shards.unwrap_or(config.shards);
        if let Some(rule) = self.scale_lr {
            if config.rate.base_batch.is_none() {
                return Err(Failure::input(
                    "--scale-lr: add --base-batch, the global batch that --lr is meant for",
                ));
            }
            config.rate.scaling = rule.into();
        }
        Ok(())
    }

    /// Returns the configuration of the run to continue, with the number of epochs that the user gave.
    fn longer(&self, mut config: Recipe) -> Result<Recipe, Failure> {
        let epochs = self.config.recipe.epochs;
        if !self.config.has("epochs") {
            return Ok(config);
        }
        if epochs < config.epochs {
            return Err(Failure::input(format!(
                "--epochs {epochs}: the run has {} epochs already; give more, or leave it out",
                config.epochs
            )));
        }
        if let Some(steps) = config.steps {
            return Err(Failure::input(format!(
                "--epochs {epochs}: the run ends after steps = {steps}; change that in its config.toml, or leave --epochs out"
            )));
        }
        config.epochs = epochs;
        Ok(config)
    }

    /// Makes the run in the folder as long as the user wants, and tells what becomes of its learning rate.
    fn extend(&self, folder: &RunFolder, config: &Recipe) -> Result<(), Failure> {
        let before = folder.config()?.epochs;
        if self.resume.is_some() && config.epochs > before {
            folder.extend(config)?;
            say!("{}", config.rate.describe_longer(before, config.epochs));
        }
        Ok(())
    }

    /// True if `--set` decides the number of shards.
    fn sets_shards(&self) -> bool {
        self.set
            .iter()
            .any(|set| ["shards", "nproc"].contains(&set.split('=').next().unwrap_or_default().trim()))
    }

    /// Returns the default number of shards for so many workers.
    fn shards_of(&self, workers: usize) -> Result<usize, Failure> {
        let accumulate = self.accumulate.unwrap_or(1);
        if accumulate == 0 {
            return Err(Failure::input("--accumulate 0: it must be at least 1"));
        }
        workers.checked_mul(accumulate).ok_or_else(|| {
            Failure::input(format!(
                "--accumulate {accumulate} × {workers} workers: more shards than can be counted"
            ))
        })
    }

    /// Returns what the options and `--set` say, without a file.
    pub(super) fn typed(&self) -> Result<Recipe, Failure> {
        self.with_fields(self.config.recipe.clone())
    }

    /// Returns the configuration with the values of `--set`.
    fn with_fields(&self, config: Recipe) -> Result<Recipe, Failure> {
        Ok(self.set.iter().try_fold(config, |config, assignment| config.with_field(assignment))?)
    }

    /// Applies the options that do not change the result; each part of a run may set them anew.
    fn adapted(&self, config: Recipe) -> Result<Recipe, Failure> {
        let mut config = self.with_fields(config)?;
        if config.data.is_empty() {
            config.data = USUAL_DATA.into();
        }
        if self.resume.is_none() {
            // A later part of the run may start in another working directory.
            config.data = data::absolute(&config.data);
            config.init = config.init.map(|file| std::path::absolute(&file).unwrap_or(file));
        }
        config.run_by(self.nproc);
        if !self.shares.is_empty() {
            config.shares = Some(self.shares.clone());
        }
        if let Some(straggler) = &self.straggler {
            config.straggler.clone_from(straggler);
        }
        config.check()?;
        Ok(config)
    }
}

/// Settings that are valid but do less than they seem to.
fn surprises(config: &Recipe, samples: usize) -> Vec<String> {
    let (shards, workers) = (config.shards, config.nproc);
    let mut found = config.without_effect();
    if shards < workers {
        let idle = workers - shards;
        found.push(format!(
            "--shards {shards}: {idle} of {workers} workers have nothing to do; give --shards {workers} or a multiple of it"
        ));
    }
    let batch = shards.saturating_mul(config.batch_size);
    if batch > samples {
        found.push(format!(
            "a step of {shards} shards × {} samples takes all of the {samples} samples there are; give a smaller --batch-size",
            config.batch_size
        ));
    }
    let plan = config.plan(samples).ok().filter(|plan| plan.warmup_steps > plan.planned_steps);
    if let Some(Plan { planned_steps, warmup_steps, top_rate, .. }) = plan {
        found.push(format!(
            "--warmup-steps {warmup_steps}: the learning rate rises in all {planned_steps} steps of the run and does not reach \
             {top_rate}; give --warmup-steps {}",
            planned_steps / 10
        ));
    }
    found
}

fn no_dashboard(problem: NoTerminal) -> Failure {
    Failure::input(format!("--dashboard: {problem}"))
}

/// Prints the path of the timeline. Workers of a failed job leave parts, which this function joins.
fn show_timeline(file: &Path) {
    if kolo_trace::parts_folder(file).exists()
        && let Err(error) = kolo_trace::join(file)
    {
        warn(&error.to_string());
    }
    if file.exists() {
        say!("timeline: {}, for https://ui.perfetto.dev", file.display());
    }
}

/// Returns the run folder from the environment, which wins over `--out`.
fn folder_of_launcher() -> Option<PathBuf> {
    std::env::var_os(RUN_FOLDER).map(PathBuf::from)
}

/// Returns the run folder that the launcher or another worker has made.
fn made_folder() -> Option<RunFolder> {
    folder_of_launcher().filter(|path| path.exists()).map(RunFolder::at)
}

/// Reads the number of workers at the start of the job, without its servers, from the environment.
fn started() -> Result<usize, Failure> {
    let text = std::env::var(env::WORLD_SIZE).unwrap_or_default();
    let all = text.parse::<usize>().ok().filter(|all| *all <= env::MOST_PROCESSES);
    let servers = env::servers()?;
    let number = all.and_then(|all| all.checked_sub(servers));
    number.filter(|workers| *workers > 0).ok_or_else(|| {
        Failure::input(format!("{} is `{text}`; it must be a number of workers", env::WORLD_SIZE))
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use kolo_recipe::RateConfig;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        train: Train,
    }

    #[test]
    fn settings_that_do_less_than_they_seem_to_are_reported() {
        let rate = RateConfig { warmup_steps: 8, ..RateConfig::default() };
        let usual = Recipe { rate, ..Recipe::default() };
        let config = |shards, batch_size, nproc| Recipe { shards, batch_size, nproc, ..usual.clone() };
        assert_eq!(surprises(&config(2, 50, 2), 100), Vec::<String>::new());
        let idle = "--shards 1: 2 of 3 workers have nothing to do; give --shards 3 or a multiple of it";
        assert_eq!(surprises(&config(1, 50, 3), 100), [idle]);
        assert!(surprises(&config(2, 51, 2), 100)[0].contains("takes all of the 100 samples"));
        let rises = "--warmup-steps 8: the learning rate rises in all 7 steps of the run and does not reach 0.1; give --warmup-steps 0";
        assert_eq!(surprises(&Recipe { epochs: 7, ..config(2, 50, 2) }, 100), [rises]);
        let mut scaled = config(2, 50, 2);
        scaled.precision.scale = 3.0;
        assert!(surprises(&scaled, 100)[0].starts_with("--loss-scale 3: it has no effect"));
    }

    /// Two nodes of two workers begin the job; four such nodes may come.
    #[test]
    fn nodes_that_come_later_find_shards() {
        let shards = |options: &[&str], workers, most| {
            let line = Line::parse_from([&["kolo"], options].concat());
            let mut config = line.train.configuration().unwrap();
            line.train.fit_to(&mut config, workers, most).unwrap();
            (config.nproc, config.shards)
        };
        assert_eq!(shards(&[], 4, 8), (4, 8));
        assert_eq!(shards(&["--accumulate", "2"], 4, 8), (4, 16));
        assert_eq!(shards(&["--shards", "6"], 4, 8), (4, 6), "the user's number counts");
        assert_eq!(shards(&[], 4, 4), (4, 4));
    }
}
