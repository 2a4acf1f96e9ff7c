//! A run folder in use: no other job writes to it, unless the user permits that.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use super::elastic::{RUN, STEPS, expected, has_said, result};
use super::program::{alive, fail, kolo, stderr, wait_until, workers};

fn start(folder: &Path, words: &Path, more: &[&str]) -> Child {
    let args = [&RUN[..], &["--nproc", "2", "--out", "run"], more].concat();
    let file = std::fs::File::create(words).unwrap();
    kolo(folder, &args).stdout(Stdio::null()).stderr(file).spawn().unwrap()
}

/// Starts a job and waits for its checkpoint of step 40. Returns the job and its workers.
fn start_until_step_40(folder: &Path, words: &Path) -> (Child, Vec<u32>) {
    let job = start(folder, words, &["--checkpoint-steps", "20"]);
    let checkpoint = folder.join("run/checkpoints/step-00000040");
    wait_until("no checkpoint is written", || checkpoint.exists());
    let workers = workers(&job);
    (job, workers)
}

/// The first job is stopped, so that it lives for as long as the test needs it to.
#[test]
fn a_run_that_somebody_trains_is_resumed_by_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let words = folder.path().join("words");
    let (mut job, before) = start_until_step_40(folder.path(), &words);
    // A stopped launcher ends none of its workers.
    let signal = |name: &str, pid: u32| {
        let pid = pid.to_string();
        std::process::Command::new("kill").args([name, &pid]).status().unwrap();
    };
    for pid in [&[job.id()][..], &before[..]].concat() {
        signal("-STOP", pid);
    }
    let (code, error) = fail(folder.path(), &["train", "--resume", "run"]);
    assert!(before.len() == 2, "{before:?}");
    let names_it = before.iter().any(|pid| error.contains(&format!("is written by process {pid} on ")));
    assert!(code == 2 && names_it && error.contains("--take-over"), "{error}");

    let output = kolo(folder.path(), &["train", "--resume", "run", "--take-over"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    for pid in [&before[..], &[job.id()][..]].concat() {
        signal("-CONT", pid);
    }
    let status = job.wait().unwrap();
    let words = std::fs::read_to_string(words).unwrap();
    assert!(!status.success() && words.contains("has been taken from this job by"), "{words}");
    assert!(words.contains("`kolo train --resume run` goes on"), "{words}");
    // Every step once, and in the bits of the undisturbed run.
    assert_eq!(result(folder.path()), expected());
    let text = std::fs::read_to_string(folder.path().join("run/steps.jsonl")).unwrap();
    let number = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["step"].as_u64();
    let steps: Vec<u64> = text.lines().map(|line| number(line).unwrap()).collect();
    assert!(steps.iter().copied().eq(0..STEPS as u64), "{steps:?}");
}

#[test]
fn a_run_whose_writer_was_killed_is_resumed_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let words = folder.path().join("words");
    let (mut job, before) = start_until_step_40(folder.path(), &words);
    job.kill().unwrap();
    job.wait().unwrap();
    wait_until("the workers outlive their launcher", || !before.iter().any(|pid| alive(*pid)));
    let output = kolo(folder.path(), &["train", "--resume", "run"]).output().unwrap();
    let words = stderr(&output);
    assert!(output.status.success() && !words.contains("waiting up to"), "{words}");
    assert_eq!(result(folder.path()), expected());
}

/// A replacement of a dead worker finds no folder. It must not make one, or the one that is away could not
/// come back.
#[test]
fn a_folder_that_is_away_is_not_made_anew_by_a_replacement() {
    let folder = tempfile::tempdir().unwrap();
    let (run, away) = (folder.path().join("run"), folder.path().join("away"));
    let words = folder.path().join("words");
    let mut job = start(folder.path(), &words, &["--max-restarts", "1"]);
    assert!(has_said(&mut job, &words, "2 workers over"));
    std::fs::rename(&run, &away).unwrap();
    let before = workers(&job);
    let kill = std::process::Command::new("kill").args(["-9".into(), before[1].to_string()]).status();
    assert!(kill.unwrap().success() && has_said(&mut job, &words, "generation 2 of 1 workers"));
    let is_replaced = || workers(&job).iter().any(|pid| !before.contains(pid) && alive(*pid));
    wait_until("nobody is started in the dead one's place", is_replaced);
    std::thread::sleep(Duration::from_millis(300));
    std::fs::rename(&away, &run).unwrap();
    let status = job.wait().unwrap();
    let words = std::fs::read_to_string(words).unwrap();
    assert!(status.success(), "{words}");
    assert_eq!(result(folder.path()), expected(), "{words}");
}
