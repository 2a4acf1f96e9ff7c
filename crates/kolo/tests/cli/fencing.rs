//! A run folder in use: no other job writes to it, unless the user permits that.

use std::path::Path;
use std::time::Duration;

use kolo_testing::jobs::Logged;
use kolo_testing::{alive, send, wait_until};

use super::elastic::{RUN, STEPS, expected, result};
use super::program::{self, fail, kolo, stderr, workers};

fn start(folder: &Path, more: &[&str]) -> Logged {
    program::start(folder, &[&RUN[..], &["--nproc", "2", "--out", "run"], more].concat())
}

/// Starts a job and waits for its checkpoint of step 40. Returns the job and its workers.
fn start_until_step_40(folder: &Path) -> (Logged, Vec<u32>) {
    let job = start(folder, &["--checkpoint-steps", "20"]);
    let checkpoint = folder.join("run/checkpoints/step-00000040");
    wait_until("no checkpoint is written", || checkpoint.exists());
    let workers = workers(&job.process);
    (job, workers)
}

/// The first job is stopped, so that it lives for as long as the test needs it to.
#[test]
fn a_run_that_somebody_trains_is_resumed_by_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let (mut job, before) = start_until_step_40(folder.path());
    // A stopped launcher ends none of its workers.
    send("STOP", &[&[job.process.id()], &before[..]].concat());
    let (code, error) = fail(folder.path(), &["train", "--resume", "run"]);
    assert!(before.len() == 2, "{before:?}");
    let names_it = before.iter().any(|pid| error.contains(&format!("is written by process {pid} on ")));
    assert!(code == 2 && names_it && error.contains("--take-over"), "{error}");

    let output = kolo(folder.path(), &["train", "--resume", "run", "--take-over"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    send("CONT", &[&before[..], &[job.process.id()]].concat());
    let (status, words) = job.end();
    assert!(!status.success() && words.contains("has been taken from this job by"), "{words}");
    assert!(words.contains("`kolo train --resume run` continues when the other has ended"), "{words}");
    assert!(!words.contains("continues after step"), "another process writes it: {words}");
    // Every step once, and in the bits of the undisturbed run.
    assert_eq!(result(folder.path()), expected());
    program::all_steps(&folder.path().join("run"), 0..STEPS as u64);
}

/// It would wait in vain for a checkpoint to continue from.
#[test]
fn a_run_that_has_just_begun_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let mut job = start(folder.path(), &[]);
    let steps = folder.path().join("run/steps.jsonl");
    assert!(job.wait("it does not train", |_| steps.exists()));
    send("STOP", &[&[job.process.id()], &workers(&job.process)[..]].concat());
    let (code, error) = fail(folder.path(), &[&RUN[..], &["--out", "run"]].concat());
    let told = "another process trains in the run folder run, and has not written a checkpoint yet; choose another --out";
    assert!(code == 2 && error.contains(told), "{error}");
}

/// The one that is refused must neither take the folder along nor leave its own settings there.
#[test]
fn of_two_jobs_that_start_in_one_folder_one_trains() {
    for pause in [0, 300] {
        let folder = tempfile::tempdir().unwrap();
        let args = [&RUN[..], &["--nproc", "2", "--out", "run", "--resume-or-start", "--warmup-steps", "0"]]
            .concat();
        let begin = |lr| {
            let args = [&args[..], &["--lr", lr]].concat();
            Logged::start(&mut kolo(folder.path(), &args), folder.path().join(lr))
        };
        let rates = ["0.1", "0.05"];
        let first = begin(rates[0]);
        std::thread::sleep(Duration::from_millis(pause));
        let ends = [first, begin(rates[1])].map(|mut job| job.end());
        let trained: Vec<&str> = rates
            .into_iter()
            .zip(&ends)
            .filter_map(|(rate, (status, _))| status.success().then_some(rate))
            .collect();
        let config = std::fs::read_to_string(folder.path().join("run/config.toml")).unwrap();
        assert!(
            trained.len() == 1 && config.contains(&format!("\nlr = {}\n", trained[0])),
            "{config} {ends:?}"
        );
        let steps = std::fs::read_to_string(folder.path().join("run/steps.jsonl")).unwrap();
        let first = steps.lines().next().unwrap();
        assert!(first.contains(&format!("\"learning_rate\":{},", trained[0])), "{first}");
        assert_eq!(steps.lines().count(), STEPS);
    }
}

#[test]
fn a_run_whose_writer_was_killed_is_resumed_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (job, before) = start_until_step_40(folder.path());
    drop(job);
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
    let mut job = start(folder.path(), &["--max-restarts", "1"]);
    assert!(job.has_said("2 workers over"));
    std::fs::rename(&run, &away).unwrap();
    let before = workers(&job.process);
    send("KILL", &before[1..]);
    assert!(job.has_said("generation 2 of 1 worker"));
    let is_replaced = || workers(&job.process).iter().any(|pid| !before.contains(pid) && alive(*pid));
    wait_until("nobody is started in the dead one's place", is_replaced);
    std::thread::sleep(Duration::from_millis(300));
    std::fs::rename(&away, &run).unwrap();
    let (status, words) = job.end();
    assert!(status.success(), "{words}");
    assert_eq!(result(folder.path()), expected(), "{words}");
}

/// A replacement would find nobody to get the state of the job from.
#[test]
fn all_workers_end_at_once_if_the_first_one_cannot_begin_to_write() {
    let folder = tempfile::tempdir().unwrap();
    let args =
        ["train", "--model", "mlp", "--nproc", "2", "--batch-size", "8", "--steps", "4", "--out", "run"];
    program::succeed(folder.path(), &args);
    let steps = folder.path().join("run/steps.jsonl");
    std::fs::remove_file(folder.path().join("run/summary.json")).unwrap();
    std::fs::remove_file(&steps).unwrap();
    std::fs::create_dir(&steps).unwrap();
    let (code, words) = fail(folder.path(), &["train", "--resume", "run"]);
    assert!(code == 1 && words.contains("run/steps.jsonl"), "{code} {words}");
    assert!(!words.contains("generation 2") && !words.contains("node0/0.1"), "{words}");
}
