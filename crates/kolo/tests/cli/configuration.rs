//! Configuration from files, options and single keys, and runs that become longer.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::program::{fail, kolo, stderr, succeed, summary};

const SMALL: [&str; 8] = ["train", "--model", "mlp", "--nproc", "1", "--batch-size", "2000", "--no-augment"];

#[test]
fn a_printed_configuration_is_that_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let options = ["--optimizer", "adamw", "--epochs", "3", "--shards", "4", "--set", "rate.lr=0.01"];
    let printed = succeed(folder, &[&SMALL[..], &options, &["--print-config"]].concat());
    assert!(!folder.join("runs").exists());
    fs::write(folder.join("a.toml"), &printed).unwrap();
    assert_eq!(succeed(folder, &["train", "--config", "a.toml", "--print-config"]), printed);
    let again = succeed(folder, &["train", "--config", "a.toml", "--print-config", "--epochs", "5"]);
    assert_eq!(again, printed.replace("\nepochs = 3\n", "\nepochs = 5\n"));
    assert_ne!(again, printed);
    succeed(folder, &["train", "--config", "a.toml", "--steps", "1", "--out", "run"]);
    let written = fs::read_to_string(folder.join("run/config.toml")).unwrap();
    assert_eq!(written.replace("\nsteps = 1\n", "\n"), printed);
}

#[test]
fn a_run_without_data_takes_the_images_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("part.toml"), "model = \"mlp\"\n").unwrap();
    for args in [&["train"][..], &["train", "--config", "part.toml"]] {
        let printed = succeed(folder.path(), &[args, &["--print-config"]].concat());
        assert!(printed.contains("\ndata = \"fashion-mnist-small\"\n"), "{printed}");
    }
    assert_eq!(kolo_recipe::Recipe::default().data, "", "a program brings its own");
}

#[test]
fn a_complete_run_becomes_longer() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let train = |out: &str, epochs: &str, schedule: &str| {
        let options = ["--epochs", epochs, "--schedule", schedule, "--out", out];
        succeed(folder, &[&SMALL[..], &options].concat());
    };
    let sha256 = |run: &str| summary(&folder.join(run))["weights_sha256"].to_string();
    train("whole", "2", "constant");
    train("parts", "1", "constant");
    let resume = |args: &[&str]| {
        let output = kolo(folder, &[&["train", "--resume"], args].concat()).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output)
    };
    let said = resume(&["parts", "--epochs", "2"]);
    assert!(said.contains("2 epochs in place of 1: the constant schedule continues"), "{said}");
    assert_eq!(sha256("parts"), sha256("whole"), "a constant rate has no other end");
    // A later part needs no option, and the same command does nothing more.
    assert!(fs::read_to_string(folder.join("parts/config.toml")).unwrap().contains("epochs = 2"));
    succeed(folder, &["train", "--resume", "parts", "--epochs", "2"]);
    let (code, error) = fail(folder, &["train", "--resume", "parts", "--epochs", "1"]);
    assert!(code == 2 && error.contains("--epochs 1: the run has 2 epochs already; give more"), "{error}");
    let limited = ["--epochs", "2", "--steps", "1", "--out", "limited"];
    succeed(folder, &[&SMALL[..], &limited].concat());
    let (code, error) = fail(folder, &["train", "--resume", "limited", "--epochs", "3"]);
    assert!(code == 2 && error.contains("the run ends after 1 step; give more --steps as well"), "{error}");
    for (run, words) in [
        ("limited", "--steps 0: the run has 1 step already; give more, or leave it out"),
        ("parts", "--steps 0: the run ends by its epochs; give --epochs, or leave it out"),
    ] {
        let (code, error) = fail(folder, &["train", "--resume", run, "--steps", "0"]);
        assert!(code == 2 && error.contains(words), "{error}");
    }
    // More steps are those of a run that was begun with them.
    let said = resume(&["limited", "--steps", "2"]);
    assert!(said.contains("2 steps in place of 1: the learning rate follows the same schedule"), "{said}");
    succeed(folder, &[&SMALL[..], &["--epochs", "2", "--steps", "2", "--out", "longer"]].concat());
    assert_eq!(sha256("limited"), sha256("longer"));
    train("cosine", "1", "cosine");
    let said = resume(&["cosine", "--epochs", "2"]);
    assert!(said.contains("the fall of the learning rate is stretched to the new end"), "{said}");
}

/// More steps than the epochs have, and more epochs than the patience: nothing is left to do.
#[test]
fn a_complete_run_that_has_no_step_left_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let train = |args: &[&str]| succeed(folder, &[&SMALL[..], args].concat());
    train(&["--epochs", "2", "--steps", "99", "--out", "short"]);
    train(&["--epochs", "9", "--patience", "1", "--lr", "1e-12", "--out", "patient"]);
    for (run, more, changed) in [
        ("short", ["--steps", "200"], "steps = 200 has no effect: the run is over, and had 99"),
        ("patient", ["--epochs", "20"], "epochs = 20 has no effect: the run is over, and had 9"),
    ] {
        let before = files(&folder.join(run));
        assert!(before.keys().any(|path| path.ends_with("summary.json")), "{before:?}");
        let output = kolo(folder, &["train", "--resume", run, more[0], more[1]]).output().unwrap();
        let words = stderr(&output);
        let steps = summary(&folder.join(run))["steps"].clone();
        let complete = format!("the run in {run} is complete: all {steps} steps are done\n");
        assert!(output.status.success() && words.contains(&complete) && words.contains(changed), "{words}");
        assert!(!words.contains("in place of") && output.stdout.is_empty(), "{output:?}");
        assert_eq!(files(&folder.join(run)), before, "{run}");
    }
}

/// Returns the bytes of all files below a folder.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => drop(found.insert(path.clone(), fs::read(&path).unwrap())),
        }
    }
    found
}

#[test]
fn signals_of_the_environment_reach_the_workers() {
    let folder = tempfile::tempdir().unwrap();
    let words = |value: &str| {
        let mut job =
            kolo(folder.path(), &["launch", "--nproc", "1", "--", "sh", "-c", "echo on=$KOLO_STOP_ON"]);
        let output = job.env("KOLO_STOP_ON", value).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(words("usr1,SIGUSR2").contains("on=usr1,usr2"));
}

#[test]
fn a_run_is_resumed_with_fewer_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let begin = ["train", "--model", "mlp", "--batch-size", "4", "--nproc", "1", "--out", "run"];
    let kept = || std::fs::read_dir(folder.path().join("run/checkpoints")).unwrap().count();
    // Only the last checkpoint of each start is waited for.
    succeed(folder.path(), &[&begin[..], &["--steps", "1", "--keep-checkpoints", "4"]].concat());
    succeed(folder.path(), &["train", "--resume", "run", "--steps", "2"]);
    succeed(folder.path(), &["train", "--resume", "run", "--steps", "3"]);
    assert_eq!(kept(), 3);
    succeed(folder.path(), &["train", "--resume", "run", "--steps", "4", "--keep-checkpoints", "2"]);
    assert_eq!(kept(), 2);
}

#[test]
fn a_place_that_is_not_utf8_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let place = std::ffi::OsStr::from_bytes(b"bad\xff");
    let refused = kolo(folder.path(), &["train", "--out"]).arg(place).output().unwrap();
    let words = stderr(&refused);
    let told = "the path of a run folder must be UTF-8; choose another --out, or begin in another folder";
    assert!(refused.status.code() == Some(2) && words.contains(told), "{words}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A run that its time ends says so, and continues with another limit.
#[test]
fn a_run_is_resumed_with_another_limit_of_time() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["train", "--model", "mlp", "--shards", "2", "--batch-size", "4", "--steps", "4"];
    let limited = ["--nproc", "1", "--max-hours", "1e-9", "--out", "run"];
    let ended = kolo(folder.path(), &[&args[..], &limited].concat()).output().unwrap();
    let words = stderr(&ended);
    assert!(ended.status.code() == Some(143) && words.contains("hours (--max-hours) is over: "), "{words}");
    succeed(folder.path(), &["train", "--resume", "run", "--max-hours", "1"]);
    succeed(folder.path(), &[&args[..], &["--nproc", "2", "--out", "whole"]].concat());
    let hash = |run: &str| summary(&folder.path().join(run))["weights_sha256"].clone();
    assert_eq!(hash("run"), hash("whole"));
}
