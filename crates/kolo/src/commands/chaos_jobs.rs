//! The jobs of `kolo chaos`: the one that was asked for, and those that take turns with it.

use std::ffi::OsString;
use std::path::Path;

use kolo::Failure;
use kolo_data::Part;
use kolo_ddp::Sharding;
use kolo_models as models;
use kolo_program::output::note;
use kolo_recipe::{NeedsAll, Recipe};
use kolo_verify::chaos::Program;
use kolo_verify::{trial_images, trial_texts};

use super::train;

/// Default options for a job of a few seconds.
const SMALL: [(&str, &str); 4] =
    [("--shards", "8"), ("--steps", "500"), ("--batch-size", "8"), ("--checkpoint-epochs", "100")];

/// Returns the configuration of a job. Refuses what `kolo train` refuses, and a job with stale
/// synchronization, which does not promise the same bits.
pub(super) fn check_job(options: &[OsString]) -> Result<Recipe, Failure> {
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
pub(super) fn given(options: &[OsString], name: &str) -> bool {
    options.iter().any(|option| {
        let text = option.to_string_lossy();
        text.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    })
}

/// Makes the job write checkpoints often, so that some writes meet a full disk.
const OFTEN: (&str, &str) = ("--checkpoint-steps", "20");

/// Adds the options of a small job that neither the options nor a configuration file set.
pub(super) fn with_defaults(mut options: Vec<OsString>, has_disk: bool) -> Vec<OsString> {
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
pub(super) fn additions(reads_text: bool) -> &'static str {
    if reads_text { "own texts" } else { "own images" }
}

/// Divides the state of a job, so that each part has two owners, or lets workers share it. Returns `None`,
/// and says why, if the job cannot have that.
pub(super) fn with_divided_state(
    options: &[OsString],
    state: &str,
    nodes: usize,
    servers: usize,
) -> Option<Program> {
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
pub(super) fn with_own_samples(options: &[OsString], folder: &Path) -> Result<Option<Program>, Failure> {
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
pub(super) fn reads_text(options: &[OsString]) -> bool {
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
