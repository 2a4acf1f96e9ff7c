//! The optimizer's state in a file: the folder is needed at the start only, and a run that continues may have
//! another one.

use std::fs;

use kolo_testing::send;

use super::elastic::{RUN, expected, result};
use super::program::{fail, start, succeed, workers};

/// The survivors of a death keep their files. A replacement cannot have one, and is not started again.
#[test]
fn a_folder_that_is_removed_is_needed_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    fs::create_dir(&state).unwrap();
    // Slow enough for a replacement to come before the end.
    let more = ["--shard", "optimizer", "--redundancy", "2", "--offload", "state", "--slow", "0:compute:2"];
    let args = [&RUN[..], &["--nproc", "3", "--max-restarts", "3", "--out", "run"], &more].concat();
    let mut job = start(folder.path(), &args);
    let steps = folder.path().join("run/steps.jsonl");
    assert!(job.wait("no step is done", |_| fs::metadata(&steps).is_ok_and(|file| file.len() > 0)));
    fs::remove_dir(&state).unwrap();
    send("KILL", &workers(&job.process)[..1]);
    let told = "state: the folder for the optimizer's state does not exist; create it";
    assert!(job.wait("no replacement has come", |words| words.contains(told)));
    let (status, words) = job.end();
    assert!(status.success() && words.contains("generation 2 of 2 workers"), "{words}");
    assert_eq!(words.matches(told).count(), 1, "{words}");
    assert!(!words.contains("generation 3"), "a worker without a place joins nobody: {words}");
    assert_eq!(result(folder.path()), expected(), "{words}");
}

#[test]
fn a_run_continues_with_another_folder() {
    let folder = tempfile::tempdir().unwrap();
    ["one", "two"].iter().for_each(|name| fs::create_dir(folder.path().join(name)).unwrap());
    let run = ["train", "--model", "mlp", "--nproc", "2", "--batch-size", "8", "--optimizer", "adamw"];
    let begin = ["--steps", "10", "--lr", "0.001", "--offload", "one", "--out", "run"];
    succeed(folder.path(), &[&run[..], &begin].concat());
    fs::remove_dir(folder.path().join("one")).unwrap();
    let (code, words) = fail(folder.path(), &["train", "--resume", "run", "--steps", "20"]);
    assert!(
        code == 2 && words.contains("one: the folder for the optimizer's state does not exist"),
        "{words}"
    );
    let other = ["train", "--resume", "run", "--steps", "20", "--offload", "two"];
    succeed(folder.path(), &other);
    let alone = ["--steps", "20", "--lr", "0.001", "--out", "alone"];
    succeed(folder.path(), &[&run[..], &alone].concat());
    let hash = |run: &str| super::program::summary(&folder.path().join(run))["weights_sha256"].to_string();
    assert_eq!(hash("run"), hash("alone"));
}
