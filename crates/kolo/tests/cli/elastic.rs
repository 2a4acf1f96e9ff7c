//! Workers that are killed or leave: the others go on, others come, and the weights end in the same bits.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
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

/// Runs with four workers. In each generation a signal goes to one of those that live. Gives the hash of the weights, and
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
        let kill = Command::new("kill").args([format!("-{signal}"), pid.to_string()]).status().unwrap();
        sent += usize::from(kill.success());
    }
    let status = job.wait().unwrap();
    let words = std::fs::read_to_string(words).unwrap();
    assert!(status.success(), "{words}");
    assert!(sent > 0, "the job ended before anything happened: {words}");
    (result(folder.path()), words)
}

/// What the undisturbed run ends with.
fn expected() -> &'static str {
    static EXPECTED: OnceLock<String> = OnceLock::new();
    EXPECTED.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        succeed(folder.path(), &[&RUN[..], &["--nproc", "1", "--out", "run"]].concat());
        result(folder.path())
    })
}

#[test]
fn deaths_do_not_change_the_weights() {
    for (transport, signals) in [
        ("shm", &[("KILL", 0), ("KILL", 1)][..]),
        ("tcp", &[("KILL", 2), ("KILL", 0)]),
        ("shm", &[("TERM", 1), ("KILL", 0)]),
    ] {
        let (sha256, words) = disturbed(transport, signals);
        assert_eq!(sha256, expected(), "{transport} {signals:?}: {words}");
        assert!(words.contains("generation 2 of 3 workers"), "{words}");
    }
}

/// Rank 0 dies while the folder is away: what is missing is written when that is back.
#[test]
fn a_folder_that_is_away_at_a_death_is_mended_later() {
    let folder = tempfile::tempdir().unwrap();
    let (run, away) = (folder.path().join("run"), folder.path().join("away"));
    let words = folder.path().join("words");
    let args = [&RUN[..], &["--nproc", "3", "--max-restarts", "0", "--out", "run"]].concat();
    let file = std::fs::File::create(&words).unwrap();
    let mut job = kolo(folder.path(), &args).stdout(Stdio::null()).stderr(file).spawn().unwrap();
    assert!(has_said(&mut job, &words, "3 workers over"));
    std::fs::rename(&run, &away).unwrap();
    let kill = Command::new("kill").args(["-9".into(), workers(&job)[0].to_string()]).status().unwrap();
    assert!(kill.success() && has_said(&mut job, &words, "the run folder is gone"));
    std::fs::rename(&away, &run).unwrap();
    let status = job.wait().unwrap();
    let words = std::fs::read_to_string(words).unwrap();
    assert!(status.success() && words.contains("generation 2 of 2 workers"), "{words}");
    assert_eq!(result(folder.path()), expected(), "{words}");
}
