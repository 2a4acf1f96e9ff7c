//! Jobs that are asked to end: every way to synchronize, and to divide the state, at odd moments.

use std::time::Duration;

use kolo_testing::{ignores, selected, send};

use super::program::{start, succeed, workers};

/// Moment at which a job is asked to end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    /// After a few steps.
    Training,
    /// While the model is evaluated, one sample at a time.
    Evaluation,
    /// Right after the death of a worker.
    Recovery,
    /// In the last steps, or while the last checkpoint is written.
    End,
}

use Moment::{End, Evaluation, Recovery, Training};

const RUN: [&str; 14] = [
    "train", "--model", "mlp", "--shards", "6", "--steps", "80", "--eval-steps", "20", "--batch-size", "8",
    "--out", "run", "--nproc",
];

/// Signals, their numbers, a moment, and what is added to the run.
const CASES: [(&str, i32, Moment, &[&str]); 12] = [
    ("TERM", 15, Recovery, &["--shard", "parameters"]),
    ("INT", 2, Evaluation, &["--sync", "stale:3"]),
    ("TERM", 15, Recovery, &["--shard", "gradients", "--redundancy", "2"]),
    ("HUP", 1, End, &["--shard", "parameters"]),
    ("TERM", 15, Training, &["--sync", "delayed:1"]),
    ("HUP", 1, Recovery, &["--sync", "local:H=4"]),
    ("TERM", 15, Evaluation, &["--sync", "diloco:H=4"]),
    ("INT", 2, Training, &["--shard", "gradients"]),
    ("TERM", 15, Evaluation, &["--shard", "parameters"]),
    ("HUP", 1, Training, &["--sync", "stale:3"]),
    ("INT", 2, End, &["--sync", "delayed:1"]),
    ("TERM", 15, Recovery, &["--shard", "optimizer", "--redundancy", "2"]),
];

#[test]
fn what_was_done_is_saved_in_every_mode() {
    for (signal, number, moment, more) in selected(3, CASES) {
        if ignores(number) {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let one_by_one: &[&str] = if moment == Evaluation { &["--test-batch-size", "1"] } else { &[] };
        let mut job = start(folder.path(), &[&RUN[..], &["3"], one_by_one, more].concat());
        let path = folder.path().join("run/steps.jsonl");
        let steps = match moment {
            Training | Recovery => 6,
            Evaluation => 20,
            End => 78,
        };
        let count = |path| std::fs::read_to_string(path).unwrap_or_default().lines().count();
        assert!(job.wait("too few steps", |_| count(&path) >= steps), "{more:?}");
        if moment == Evaluation {
            std::thread::sleep(Duration::from_millis(100));
        }
        if moment == Recovery {
            send("KILL", &workers(&job.process)[1..2]);
        }
        send(signal, &[job.process.id()]);
        let (status, words) = job.end();
        let case = format!("{signal}, {moment:?}, {more:?}: {words}");
        if moment == Recovery && needs_all(more) {
            check_loss(status.code(), number, &words, &case);
            continue;
        }
        // A job may be faster than the signal.
        if moment != End || !folder.path().join("run/summary.json").exists() {
            assert_eq!(status.code(), Some(128 + number), "{case}");
            assert!(words.contains("a checkpoint holds all of it"), "{case}");
            assert!(words.contains("`kolo train --resume run` continues after step "), "{case}");
        }
        succeed(folder.path(), &["train", "--resume", "run", "--nproc", "3"]);
        assert!(folder.path().join("run/summary.json").exists() && count(&path) == 80, "{more:?}");
    }
}

/// True if the job ends with the first worker that dies.
fn needs_all(more: &[&str]) -> bool {
    more.contains(&"--shard") && !more.contains(&"--redundancy")
}

/// Checks the end of a job of which nothing can be saved.
fn check_loss(code: Option<i32>, signal: i32, words: &str, case: &str) {
    assert!([Some(137), Some(128 + signal)].contains(&code), "{case}");
    let nothing = "there is no checkpoint, so the run can only begin anew; --checkpoint-steps writes some";
    assert!(words.contains(nothing) && words.contains("(run keeps the metrics of its steps)"), "{case}");
}
