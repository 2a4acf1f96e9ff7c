//! Workers that are killed or leave: the others go on, others come, and the weights end in the same bits.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::program::{alive, kolo, succeed, summary, workers};

const RUN: [&str; 9] =
    ["train", "--shards", "8", "--steps", "150", "--batch-size", "8", "--checkpoint-epochs", "100"];

/// The hash of the weights that a run has ended with, after as many lines of steps as it should have.
fn result(folder: &Path) -> String {
    let steps = std::fs::read_to_string(folder.join("run/steps.jsonl")).unwrap();
    assert_eq!(steps.lines().count(), 150, "a line for each step");
    summary(&folder.join("run"))["weights_sha256"].as_str().unwrap().into()
}

/// Waits until the job has said something; false if it ends before.
fn has_said(job: &mut Child, words: &Path, what: &str) -> bool {
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        if std::fs::read_to_string(words).unwrap().contains(what) {
            return true;
        }
        if job.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the job has not said `{what}`: {}", std::fs::read_to_string(words).unwrap());
}

/// Runs with four workers. In each generation a signal, or several one after another, goes to one of those that live. Gives the hash of the weights, and
/// what was said.
fn disturbed(transport: &str, signals: &[(&str, usize)]) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let words = folder.path().join("words");
    let args = [&RUN[..], &["--nproc", "4", "--transport", transport, "--out", "run"]].concat();
    let file = std::fs::File::create(&words).unwrap();
    let mut job = kolo(folder.path(), &args).stdout(Stdio::null()).stderr(file).spawn().unwrap();
    let mut sent = 0;
    for (number, (signal, victim)) in signals.iter().enumerate() {
        let sign = match number {
            0 => "4 workers over".into(),
            _ => format!("generation {} ", number + 1),
        };
        if !has_said(&mut job, &words, &sign) {
            break;
        }
        std::thread::sleep(Duration::from_millis(150));
        let living: Vec<u32> = workers(&job).into_iter().filter(|pid| alive(*pid)).collect();
        let Some(pid) = living.get(victim % living.len().max(1)) else { break };
        for (number, signal) in signal.split(' ').enumerate() {
            std::thread::sleep(Duration::from_millis(300 * number as u64));
            let kill = Command::new("kill").args([format!("-{signal}"), pid.to_string()]).status().unwrap();
            sent += usize::from(kill.success());
        }
    }
    let status = job.wait().unwrap();
    let words = std::fs::read_to_string(words).unwrap();
    assert!(status.success(), "{words}");
    assert!(sent > 0, "the job ended before anything happened: {words}");
    (result(folder.path()), words)
}

#[test]
fn deaths_do_not_change_the_weights() {
    let folder = tempfile::tempdir().unwrap();
    succeed(folder.path(), &[&RUN[..], &["--nproc", "1", "--out", "run"]].concat());
    let expected = result(folder.path());
    for (transport, signals) in [
        ("shm", &[("KILL", 0), ("KILL", 1)][..]),
        ("tcp", &[("KILL", 2), ("KILL", 0)]),
        ("shm", &[("TERM", 1), ("KILL", 0)]),
    ] {
        let (sha256, words) = disturbed(transport, signals);
        assert_eq!(sha256, expected, "{transport} {signals:?}: {words}");
        assert!(words.contains("generation 2 of 3 workers"), "{words}");
    }
}

#[test]
fn a_stopped_worker_is_replaced_unless_it_is_continued() {
    let folder = tempfile::tempdir().unwrap();
    succeed(folder.path(), &[&RUN[..], &["--nproc", "2", "--out", "run"]].concat());
    let expected = result(folder.path());
    for (transport, signals, ended) in [
        ("shm", "STOP", true),
        ("tcp", "STOP", true),
        ("shm", "STOP CONT", false),
        ("tcp", "STOP CONT", false),
    ] {
        let (sha256, words) = disturbed(transport, &[(signals, 1)]);
        assert_eq!(sha256, expected, "{transport} {signals}: {words}");
        assert_eq!(words.contains("has been stopped for 5 s and is ended"), ended, "{words}");
        assert_eq!(words.contains("generation 2 of 3 workers"), ended, "{words}");
    }
}
