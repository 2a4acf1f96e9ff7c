//! `kolo chaos`: injects faults into a job and compares the bits.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use kolo::Failure;
use kolo_comm::env::is_worker;
use kolo_data::Part;
use kolo_ddp::Sharding;
use kolo_elastic::{ARBITERS, ArbiterKind};
use kolo_models as models;
use kolo_program::output::note;
use kolo_recipe::{NeedsAll, Recipe};
use kolo_verify::chaos::{ChaosJob, Program, chaos};
use kolo_verify::{trial_images, trial_texts};
use signal_hook::consts::signal::{SIGINT, SIGTERM};

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

/// Default options for a job of a few seconds.
const SMALL: [(&str, &str); 4] =
    [("--shards", "8"), ("--steps", "500"), ("--batch-size", "8"), ("--checkpoint-epochs", "100")];

/// Options of `kolo train` that `kolo chaos` sets itself.
const OWN: [&str; 8] = [
    "--nproc",
    "--servers",
    "--out",
    "--resume",
    "--resume-or-start",
    "--max-restarts",
    "--master-port",
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

/// Returns the configuration of a job. Refuses what `kolo train` refuses, and a job with stale
/// synchronization, which does not promise the same bits.
fn check_job(options: &[OsString]) -> Result<Recipe, Failure> {
    let train = train::parse(options)?;
    let config = train.configuration()?;
    train.check_shared_memory(&config)?;
    let sync = &config.sync.mode;
    match sync.traits().staleness_bound {
        Some(_) => Err(Failure::input(format!(
            "--sync {sync}: it promises no bits, so there is nothing to compare a disturbed run with; take another mode"
        ))),
        None => match config.needs_all_workers() {
            Some(NeedsAll { option, remedy }) => {
                let way_out =
                    remedy.map_or("leave it out".into(), |remedy| format!("add {remedy}, or leave it out"));
                Err(Failure::input(format!(
                    "{option}: the job ends with the first worker that dies, so there is no disturbed run to compare; {way_out}"
                )))
            }
            None => Ok(config),
        },
    }
}

/// True if the options contain this one, as `--name value` or `--name=value`.
fn given(options: &[OsString], name: &str) -> bool {
    options.iter().any(|option| {
        let text = option.to_string_lossy();
        text.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    })
}

/// Makes the job write checkpoints often, so that some writes meet a full disk.
const OFTEN: (&str, &str) = ("--checkpoint-steps", "20");

/// Adds the options of a small job that neither the options nor a configuration file set.
fn with_defaults(mut options: Vec<OsString>, has_disk: bool) -> Vec<OsString> {
    let said = |name: &str| {
        let divided = name == "--shards" && given(&options, "--accumulate");
        divided || given(&options, "--config") || given(&options, name)
    };
    let all = SMALL.into_iter().chain(has_disk.then_some(OFTEN));
    let missing: Vec<(&str, &str)> = all.filter(|(name, _)| !said(name)).collect();
    options.extend(missing.into_iter().flat_map(|(name, value)| [name.into(), value.into()]));
    options
}

/// Additions of the second job of `kolo chaos`, by whether the model reads text.
fn additions(reads_text: bool) -> &'static str {
    if reads_text { "own texts" } else { "own images" }
}

/// Divides the state of a job, so that each part has two owners, or lets workers share it. Returns `None`,
/// and says why, if the job cannot have that.
fn with_divided_state(options: &[OsString], state: &str, nodes: usize, servers: usize) -> Option<Program> {
    let mut options = options.to_vec();
    options.extend(["--shard", state].map(OsString::from));
    if state != Sharding::Host.name() {
        options.extend(["--redundancy", "2"].map(OsString::from));
    }
    // Of one division each optimizer's state is in a file.
    if state == Sharding::Optimizer.name() && !given(&options, "--offload") {
        options.extend(["--offload".into(), std::env::temp_dir().into_os_string()]);
    }
    let why = match check_job(&options) {
        Err(failure) => failure.to_string(),
        Ok(config) if nodes > 1 && config.is_shared() => "it needs one node".into(),
        Ok(_) if nodes > 1 => "both owners of a part may be on the node that dies".into(),
        Ok(config) => match config.check_sharding_with_servers(servers) {
            Err(error) => error.to_string(),
            Ok(()) => return Some(Program::Train(options)),
        },
    };
    note(&format!("no seed tries --shard {state}: {why}"));
    None
}

/// Images or texts of that job.
const SAMPLES: usize = 1200;

/// Options of that job besides its data: loading threads, a validation split, averages, and last mixed
/// images.
const MORE: [(&str, &str); 5] = [
    ("--data-threads", "2"),
    ("--val-split", "0.25"),
    ("--ema", "0.9"),
    ("--mixup", "0.2"),
    ("--cutmix", "1"),
];

/// Adds images or texts of a folder, and what a run over them may have, to the options of a job, as far as
/// they do not say it themselves. Returns `None`, and says why, if the job cannot have that.
fn with_own_samples(options: &[OsString], folder: &Path) -> Result<Option<Program>, Failure> {
    let fail = |error| Failure::work(format!("{}: {error}", folder.display()));
    let reads_text = reads_text(options);
    let written = match reads_text {
        true => trial_texts::write(folder, SAMPLES),
        false => trial_images::write(folder, SAMPLES),
    };
    written.map_err(fail)?;
    match own_samples(options.to_vec(), reads_text, folder) {
        Ok(options) => Ok(Some(Program::Train(options))),
        Err(why) => {
            note(&format!("no seed tries {}: {why}", additions(reads_text)));
            Ok(None)
        }
    }
}

/// True if the model of a job is a language model.
fn reads_text(options: &[OsString]) -> bool {
    let model = check_job(options).ok().and_then(|config| models::find(&config.model).ok());
    model.is_some_and(|model| model.traits().reads_text)
}

fn own_samples(
    mut options: Vec<OsString>,
    reads_text: bool,
    folder: &Path,
) -> Result<Vec<OsString>, Failure> {
    let add = |options: &mut Vec<OsString>, name: &str, value: &str| {
        if !given(options, name) {
            options.extend([name.into(), value.into()]);
        }
    };
    let has_data = given(&options, "--data");
    if !has_data {
        let (kind, option, size) =
            if reads_text { ("text", "--context", "16") } else { ("folder", "--size", "32") };
        add(&mut options, "--data", &format!("{kind}:{}", folder.display()));
        add(&mut options, option, size);
    }
    // Islands have several sets of weights.
    let has_islands = check_job(&options)?.sync.mode.traits().rounds.is_some();
    let more = if reads_text { &MORE[..3] } else { &MORE[..] };
    for (name, value) in more.iter().filter(|(name, _)| !(has_islands && *name == "--ema")) {
        add(&mut options, name, value);
    }
    let config = check_job(&options)?;
    let images = config.open_data().map_err(Failure::input)?;
    models::find(&config.model)?.check(&config, images.shape())?;
    // As many steps as the other job has.
    let epoch = config.plan(images.samples(Part::Train))?.epoch_steps;
    if let Some(steps) = config.steps.filter(|_| !has_data) {
        add(&mut options, "--epochs", &steps.div_ceil(epoch).to_string());
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_without_bits_is_refused_wherever_it_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        let check = |options: &[&str]| check_job(&options.iter().map(OsString::from).collect::<Vec<_>>());
        let refusal = |options: &[&str]| check(options).unwrap_err().to_string();
        let write = |sync: &str| {
            let mut recipe = Recipe::default();
            recipe.sync.mode = sync.parse().unwrap();
            std::fs::write(&file, recipe.to_toml().unwrap()).unwrap();
        };
        let of_file = ["--config", file.to_str().unwrap()];
        write("stale:K=2");
        let stale = "--sync stale:K=2: it promises no bits";
        for options in [&["--sync=stale:K=2"][..], &["--set", "sync.mode=stale:K=2"], &of_file] {
            assert!(refusal(options).starts_with(stale), "{}", refusal(options));
        }
        check(&[of_file[0], of_file[1], "--sync", "local:H=4"]).unwrap();
        write("local:H=4");
        check(&of_file).unwrap();
        check(&["--steps", "3"]).unwrap();
    }

    #[test]
    fn what_kolo_train_refuses_is_refused_before_the_first_run() {
        let refusal = |options: &[&str]| {
            check_job(&options.iter().map(OsString::from).collect::<Vec<_>>()).unwrap_err().to_string()
        };
        assert_eq!(refusal(&["--stepps", "3"]), "after `--`: unexpected argument '--stepps' found");
        assert!(refusal(&["--config", "/none.toml"]).contains("/none.toml"));
        assert!(refusal(&["--set", "steps"]).contains("steps"));
    }

    /// A quarter of the 1,200 images is for validation; a step takes 64 of the others.
    #[test]
    fn own_images_come_with_as_many_steps() {
        let folder = tempfile::tempdir().unwrap();
        let words = |options: &[&str]| {
            let options = with_defaults(options.iter().map(OsString::from).collect(), false);
            with_own_samples(&options, folder.path()).unwrap().map(|program| match program {
                Program::Train(options) | Program::Own(options) => check_job(&options).unwrap(),
            })
        };
        let config = words(&["--steps", "40"]).unwrap();
        assert_eq!(config.data, format!("folder:{}", folder.path().display()));
        // Fifteen steps an epoch.
        assert_eq!((config.steps, config.epochs, config.input.data_threads), (Some(40), 3, 2));
        assert_eq!((config.ema, config.mixup, config.cutmix), (Some(0.9), Some(0.2), Some(1.0)));
        assert_eq!(config.input.val_split, Some(0.25));
        let own = words(&["--ema", "0.5", "--epochs=4"]).unwrap();
        assert_eq!((own.ema, own.epochs), (Some(0.5), 4));
        assert_eq!(words(&["--sync", "local:H=4"]).unwrap().ema, None);
        assert!(words(&["--model", "none"]).is_none());
    }

    fn defaults(options: &[&str]) -> String {
        let options = with_defaults(options.iter().map(OsString::from).collect(), false);
        options.iter().map(|option| option.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_is_said_is_said_once() {
        let all = "--shards 8 --steps 500 --batch-size 8 --checkpoint-epochs 100";
        assert_eq!(defaults(&[]), all);
        assert_eq!(
            defaults(&["--steps=9", "--shards", "4"]),
            "--steps=9 --shards 4 --batch-size 8 --checkpoint-epochs 100"
        );
        assert_eq!(defaults(&["--config", "a.toml"]), "--config a.toml");
        assert!(!defaults(&["--accumulate", "2"]).contains("--shards"));
        assert!(given(&["--nproc=3".into()], "--nproc") && !given(&["--nprocs".into()], "--nproc"));
    }
}
