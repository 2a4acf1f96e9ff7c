//! `kolo verify`: runs a job in several ways and compares the bits.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Id};
use kolo::Failure;
use kolo_comm::env::is_worker;
use kolo_ddp::table::parse_number;
use kolo_launch::Bind;
use kolo_models as models;
use kolo_program::output::note;
use kolo_recipe::{InputConfig, Recipe};
use kolo_verify::verify::{Axes, Extent, Program, VerifyJob, verify};
use kolo_verify::{trial_images, trial_texts};

use super::train::{self, Train};
use crate::options::seconds;

/// Default numbers of workers to compare with one. 3 rarely divides the shards evenly.
const WORKERS: [usize; 2] = [2, 3];

/// Check that a job ends in the same bits with any number of workers, and when it is resumed: run a few steps
/// of it in several ways and compare.
///
/// The job is `kolo train` with the options given here, or your own program that trains with Kolo: `kolo
/// verify -- ./my-trainer --its-options`. A second, shorter table shows the same training on images in a
/// folder, with two loading threads, a validation split, averaged weights and mixed images. If a run
/// differs, Kolo names the step, the parameter and the likely cause, and the exit code is 1.
#[derive(Args)]
#[command(mut_arg("json", |arg| arg.help("Print JSON, an object per line: each run, and how it compares")))]
pub(crate) struct Verify {
    /// Numbers of workers to compare with one [default: 2,3, or --nproc]
    #[arg(long, value_delimiter = ',', value_name = "LIST", conflicts_with = "nproc")]
    workers: Vec<usize>,
    /// Bucket sizes to compare, in MiB
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_values_t = [25.0, 0.5, 0.0625], value_parser = parse_number, conflicts_with = "bucket_cap_mb")]
    bucket_caps_mb: Vec<f64>,
    /// Try all combinations instead of a selection
    #[arg(long)]
    full: bool,
    /// Seconds after which Kolo gives up on a run
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds)]
    limit: f64,
    #[command(flatten)]
    train: Box<Train>,
    /// Your program and its arguments, in place of `kolo train`
    #[arg(last = true, conflicts_with_all = of_train())]
    program: Vec<OsString>,
}

/// Returns the options that only `kolo train` understands.
fn of_train() -> impl Iterator<Item = Id> {
    let others = ["config_file", "shares", "straggler"].map(Id::from);
    train::settings().into_iter().chain(others).filter(|name| name != "steps")
}

/// Additions of the second job of `kolo verify`.
const OWN_IMAGES: &str =
    "images of a folder, two loading threads, a validation split, averaged weights and mixed images";
/// The same for a language model.
const OWN_TEXTS: &str = "texts of a folder, two loading threads, a validation split and averaged weights";

/// Default number of steps: two more than those that decide the order of buckets, because later steps may add
/// gradients in another place.
const STEPS: u64 = 8;

impl Verify {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if is_worker() {
            return Err(Failure::input("kolo verify starts workers itself: run it without a launcher"));
        }
        train::refuse_bare(&self.program)?;
        kolo_launch::check_program(&self.program)?;
        let refused = [
            ("--out", self.train.out.is_some()),
            ("--resume", self.train.resume.is_some()),
            ("--resume-or-start", self.train.resume_or_start),
            ("--master-port", self.train.master_port.is_some()),
            ("--find-lr", self.train.find_lr.is_some()),
            ("--bind", self.train.communication.bind() != Bind::None),
        ];
        if let Some((option, _)) = refused.iter().find(|(_, given)| *given) {
            return Err(Failure::input(format!(
                "{option}: kolo verify starts each run anew and leaves no folder; leave this option out"
            )));
        }
        // A file says what a whole run does; only what was typed says how much of it is tried.
        let typed = self.train.typed()?;
        let steps = typed.steps.unwrap_or(STEPS);
        if steps == 0 {
            return Err(Failure::input("--steps 0: it must be at least 1"));
        }
        let (transport, timeout) = self.train.communication.asked();
        let config = self.program.is_empty().then(|| self.train.for_all()).transpose()?;
        let axes = Axes {
            workers: match (self.workers.is_empty(), self.train.nproc) {
                (false, _) => self.workers,
                (true, Some(nproc)) => vec![nproc],
                (true, None) => WORKERS.to_vec(),
            },
            caps: typed.bucket_cap_mb.map_or(self.bucket_caps_mb, |cap| vec![cap]),
            transport,
            algorithm: self.train.algorithm.clone(),
            extent: if self.full { Extent::Full } else { Extent::Selection },
            steps,
            divisible: config.as_ref().map_or_else(Vec::new, Recipe::divisible),
            recomputes: config.as_ref().is_some_and(models::could_recompute),
            offloads: config.as_ref().is_some_and(Recipe::could_offload),
        };
        // The folder lives as long as the runs.
        let folder = tempfile::tempdir().map_err(|e| Failure::work(format!("cannot make a folder: {e}")))?;
        let (mut others, mut additions) = (None, OWN_IMAGES);
        let program = match config {
            Some(config) => {
                if models::find(&config.model)?.traits().reads_text {
                    additions = OWN_TEXTS;
                }
                others = Some(own_samples(&config, steps, folder.path()));
                written(&config, folder.path().join("config.toml"))?
            }
            None => Program::Own(self.program),
        };
        let options = timeout.into_iter().flat_map(|seconds| ["--timeout".into(), seconds.into()]);
        let (limit, options) = (Duration::from_secs_f64(self.limit), options.collect());
        let mut job = VerifyJob { program, steps, limit, options, json: self.train.json };
        verify(&job, &axes)?;
        let Some(others) = others else { return Ok(()) };
        match others.and_then(|config| written(&config, folder.path().join("own-images.toml"))) {
            Ok(program) => {
                note(&format!("the same with {additions}"));
                job.program = program;
                verify(&job, &Axes { extent: Extent::Brief, caps: axes.caps[..1].into(), ..axes })
            }
            Err(why) => {
                note(&format!("not tried with {additions}: {why}"));
                Ok(())
            }
        }
    }
}

impl Train {
    /// Returns the configuration of all runs.
    fn for_all(&self) -> Result<Recipe, Failure> {
        let mut config = self.configuration()?;
        let sync = &config.sync.mode;
        if sync.traits().staleness_bound.is_some() {
            let problem = "it promises no bits, so there is nothing to compare; take another mode";
            return Err(Failure::input(format!("--sync {sync}: {problem}")));
        }
        // The trace decides how long a run trains.
        config.steps = None;
        models::find(&config.model)?;
        config.open_data().map_err(Failure::input)?;
        Ok(config)
    }
}

/// Writes the configuration of all runs to a file.
fn written(config: &Recipe, path: PathBuf) -> Result<Program, Failure> {
    std::fs::write(&path, config.to_toml()?)
        .map_err(|e| Failure::work(format!("{}: {e}", path.display())))?;
    Ok(Program::Train(path))
}

/// Returns the job over images or texts in a folder, with everything that a run over such samples may have.
fn own_samples(config: &Recipe, steps: u64, folder: &Path) -> Result<Recipe, Failure> {
    let (model, mut config) = (models::find(&config.model)?, config.clone());
    let reads_text = model.traits().reads_text;
    let samples = folder.join("samples");
    // A fourth is for validation.
    let count = (2 * config.shards).max(60);
    let written = match reads_text {
        true => trial_texts::write(&samples, count),
        false => trial_images::write(&samples, count),
    };
    written.map_err(|e| Failure::work(format!("{}: {e}", samples.display())))?;
    let kind = if reads_text { "text" } else { "folder" };
    config.data = format!("{kind}:{}", samples.display());
    // An epoch may have one step.
    config.epochs = config.epochs.max(steps as usize);
    let usual = InputConfig { val_split: Some(0.25), data_threads: 2, ..InputConfig::default() };
    config.input = match reads_text {
        true => InputConfig { context: Some(16), tokenizer: config.input.tokenizer, ..usual },
        false => InputConfig { size: Some(32), ..usual },
    };
    // Weights of another task have other classes.
    (config.init, config.init_skip) = (None, Vec::new());
    // Islands have several sets of weights.
    config.ema = config.ema.or(config.sync.mode.traits().rounds.is_none().then_some(0.9));
    if !reads_text {
        (config.mixup, config.cutmix) = (config.mixup.or(Some(0.2)), config.cutmix.or(Some(1.0)));
    }
    config.check()?;
    model.check(&config, config.open_data().map_err(Failure::input)?.shape())?;
    Ok(config)
}
