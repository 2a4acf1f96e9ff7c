//! `kill -9` of any worker at any moment in a job that may not continue without it. The job ends within 5
//! seconds (a few more on a busy machine; a deadline would be 30), names the rank, and leaves nothing.

use std::path::Path;
use std::time::{Duration, Instant};

use kolo_testing::jobs::Logged;
use kolo_testing::{alive, send, wait_until};

use super::elastic::{RUN, disturbed};
use super::program::{fail, kolo, stderr, summary, workers};

/// Kills worker number `victim` so long after the start; returns the output for the user.
fn kill_one(victim: usize, after: Duration, transport: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let args = ["train", "--nproc", "3", "--epochs", "50", "--batch-size", "16", "--out", "run"];
    let args = [&args[..], &["--min", "3", "--max-restarts", "0"]].concat();
    let mut command = kolo(folder.path(), &args);
    let mut job = Logged::start(command.env("KOLO_TRANSPORT", transport), folder.path().join("words"));
    wait_until("no three workers", || workers(&job.process).len() == 3);
    let pids = workers(&job.process);
    std::thread::sleep(after);
    // Children are listed in the order of their start, which is that of their ranks.
    send("KILL", &[pids[victim]]);
    let killed = Instant::now();
    let (status, words) = job.end();
    assert!(killed.elapsed() < Duration::from_secs(20), "{:?} until the end: {words}", killed.elapsed());
    assert_eq!(status.code(), Some(128 + 9), "{words}");
    assert!(pids.iter().all(|pid| !alive(*pid)), "a worker was left");
    words
}

#[test]
fn the_job_ends_and_names_the_rank() {
    for (victim, after, transport) in
        [(0, 0, "shm"), (1, 300, "shm"), (2, 1500, "shm"), (0, 2500, "shm"), (1, 2000, "tcp")]
    {
        let words = kill_one(victim, Duration::from_millis(after), transport);
        let first = words.lines().find(|line| line.starts_with("error:")).unwrap_or_default();
        assert!(first.contains(&format!("rank {victim} ")) && first.contains("SIGKILL"), "{words}");
    }
}

/// A worker with islands that rarely synchronize first finishes its round, so that the resumed run ends in
/// the same weights.
#[test]
fn a_worker_that_is_alone_ends_no_round_of_islands_early() {
    const ROUND: usize = 12;
    let folder = tempfile::tempdir().unwrap();
    let sync = format!("local:H={ROUND}");
    let args = ["train", "--model", "mlp", "--shards", "4", "--batch-size", "8", "--epochs", "1"];
    let args = |out: &'static str| [&args[..], &["--sync", &sync, "--out", out]].concat();
    let alone = [("RANK", "0"), ("WORLD_SIZE", "1")];
    let whole = kolo(folder.path(), &args("whole")).envs(alone).output().unwrap();
    assert!(whole.status.success(), "{}", stderr(&whole));
    let steps = steps_until_sigterm(folder.path(), &args("run"));
    assert_eq!(steps % ROUND, 0, "it ends with a round");
    let resumed = kolo(folder.path(), &["train", "--resume", "run"]).envs(alone).output().unwrap();
    assert!(resumed.status.success(), "{}", stderr(&resumed));
    let weights = |run: &str| summary(&folder.path().join(run))["weights_sha256"].clone();
    assert_eq!(weights("run"), weights("whole"));
}

/// A worker whose launcher is not Kolo's, without members: no other worker would wait for it.
#[test]
fn a_worker_that_is_alone_saves_its_last_step_at_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["train", "--epochs", "1000", "--batch-size", "16", "--out", "run"];
    let steps = steps_until_sigterm(folder.path(), &args);
    let last = format!("run/checkpoints/step-{steps:08}");
    assert!(folder.path().join(&last).exists(), "{last}");
}

/// Sends SIGTERM to a single worker while it trains, and waits for its end. Returns the number of steps in
/// `run/steps.jsonl`.
fn steps_until_sigterm(folder: &Path, args: &[&str]) -> usize {
    let mut command = kolo(folder, args);
    let mut worker = Logged::start(command.envs([("RANK", "0"), ("WORLD_SIZE", "1")]), folder.join("words"));
    let steps = || std::fs::read_to_string(folder.join("run/steps.jsonl")).unwrap_or_default();
    // A line of a step means that it trains.
    assert!(worker.wait("no step", |_| !steps().is_empty()));
    send("TERM", &[worker.process.id()]);
    assert_eq!(worker.end().0.code(), Some(143));
    steps().lines().count()
}

/// Workers that are started by hand: none is started in place of a dead one.
#[test]
fn a_fixed_group_says_how_its_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let port = kolo_testing::free_port().port().to_string();
    let args = ["train", "--model", "mlp", "--batch-size", "8", "--epochs", "1000"];
    let args = [&args[..], &["--checkpoint-steps", "20", "--out", "run"]].concat();
    let start = |rank: &str| {
        let mut command = kolo(folder.path(), &args);
        command.envs([("RANK", rank), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1")]);
        Logged::start(command.env("MASTER_PORT", &port), folder.path().join(format!("words.{rank}")))
    };
    let (mut first, other) = (start("0"), start("1"));
    let checkpoint = folder.path().join("run/checkpoints/step-00000040");
    assert!(first.wait("no checkpoint is written", |_| checkpoint.exists()));
    send("KILL", &[other.process.id()]);
    let (status, words) = first.end();
    assert!(!status.success() && words.contains("rank 1 died"), "{words}");
    assert!(words.contains("`kolo train --resume run` continues after step "), "{words}");
}

/// A worker dies, or is stopped, while another one waits for it: the job does not begin without it.
#[test]
fn a_worker_that_dies_before_the_job_begins_ends_it() {
    for (signal, words) in [("KILL", "killed by SIGKILL"), ("STOP", "has stood still for 5 s; Kolo ends it")]
    {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("if [ $RANK = 1 ]; then sleep 3; kill -{signal} $$; fi; exec \"$@\"");
        let launch = ["launch", "--nproc", "2", "--", "sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_kolo")];
        let (code, error) = fail(folder.path(), &[&launch[..], &RUN, &["--out", "run"]].concat());
        assert!(code == 128 + 9 && error.contains(words), "{signal}: {code} {error}");
        assert!(error.contains("error: rank 1 (pid "), "{signal}: {error}");
        assert!(!folder.path().join("run/steps.jsonl").exists(), "{signal}: it has trained");
    }
}

/// Halving and doubling needs equal shares, which three of four workers do not have.
#[test]
fn after_a_death_another_algorithm_adds_what_the_chosen_one_cannot() {
    let run = RUN.map(|word| if word == "6" { "4" } else { word });
    let more = ["--algorithm", "halving-doubling", "--max-restarts", "0"];
    let (undisturbed, _) = disturbed(&run, "4", "shm", &more, &[]);
    let (end, words) = disturbed(&run, "4", "shm", &more, &[("KILL", 1)]);
    assert_eq!(end, undisturbed, "{words}");
    assert!(words.contains("generation 2 of 3 workers"), "{words}");
    assert!(words.contains("algorithm halving-doubling cannot be used here"), "{words}");
}
