//! `kill -9` of any worker at any moment, where the others may not go on without it: the job ends within 5
//! seconds, names the rank, and leaves nothing.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::program::{alive, kolo, workers};

/// Kills worker number `victim` so long after the start; returns what the user reads.
fn kill_one(victim: usize, after: Duration, transport: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let args = ["train", "--nproc", "3", "--epochs", "50", "--batch-size", "16", "--out", "run"];
    let args = [&args[..], &["--min", "3", "--max-restarts", "0"]].concat();
    let mut job = kolo(folder.path(), &args)
        .env("KOLO_TRANSPORT", transport)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let pids = loop {
        let pids = workers(&job);
        if pids.len() == 3 {
            break pids;
        }
        assert!(Instant::now() < until, "three workers within a minute");
        std::thread::sleep(Duration::from_millis(2));
    };
    std::thread::sleep(after);
    // Children are listed in the order of their start, which is that of their ranks.
    assert!(Command::new("kill").args(["-9", &pids[victim].to_string()]).status().unwrap().success());
    let killed = Instant::now();
    let mut words = String::new();
    job.stderr.take().unwrap().read_to_string(&mut words).unwrap();
    let status = job.wait().unwrap();
    assert!(killed.elapsed() < Duration::from_secs(5), "{:?} until the end: {words}", killed.elapsed());
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

/// A worker that others have started, who know of no members.
#[test]
fn a_worker_that_is_no_member_ends_by_the_first_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let mut worker =
        kolo(folder.path(), &["train", "--epochs", "1000", "--batch-size", "16", "--out", "run"])
            .envs([("RANK", "0"), ("WORLD_SIZE", "1")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    // A line of a step means that it trains.
    while std::fs::metadata(folder.path().join("run/steps.jsonl")).map_or(0, |file| file.len()) == 0 {
        assert!(Instant::now() < until, "no step within a minute");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(Command::new("kill").args(["-TERM", &worker.id().to_string()]).status().unwrap().success());
    assert_eq!(worker.wait().unwrap().signal(), Some(15));
}

#[test]
fn nothing_is_left_in_shared_memory() {
    let ours = || {
        let names = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        names.filter(|entry| entry.file_name().to_string_lossy().contains("kolo")).count()
    };
    let before = ours();
    kill_one(1, Duration::from_millis(1000), "shm");
    assert_eq!(ours(), before);
}

#[test]
fn killing_the_launcher_ends_the_workers() {
    let folder = tempfile::tempdir().unwrap();
    let mut job = kolo(folder.path(), &["train", "--epochs", "50", "--out", "run"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while workers(&job).len() < 2 {
        assert!(Instant::now() < until, "two workers within a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
    let pids = workers(&job);
    job.kill().unwrap();
    job.wait().unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    while pids.iter().any(|pid| alive(*pid)) {
        assert!(Instant::now() < until, "a worker survived its launcher");
        std::thread::sleep(Duration::from_millis(10));
    }
}
