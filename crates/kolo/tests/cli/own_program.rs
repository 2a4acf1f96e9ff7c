//! A user's own program under `kolo launch`: the output after a failure, with and without [`kolo::main`].

use std::path::PathBuf;
use std::process::Output;

use super::program::{kolo, stderr};

/// Returns the path of a program of `examples/`, which Cargo builds with the tests.
pub fn example(name: &str) -> PathBuf {
    let built = PathBuf::from(env!("CARGO_BIN_EXE_kolo")).with_file_name("examples").join(name);
    assert!(built.exists(), "{} is missing: cargo build -p kolo --examples", built.display());
    built
}

/// Runs three workers that end in this way.
fn end(way: &str, more: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let program = example("ways_to_end");
    let launch = ["launch", "--nproc", "3", "--timeout", "2", "--", program.to_str().unwrap(), way];
    kolo(folder.path(), &[&launch[..], more].concat()).env_remove("RUST_LOG").output().unwrap()
}

fn error(output: &Output) -> String {
    let words = stderr(output);
    let error = words.lines().find_map(|line| line.strip_prefix("error: "));
    error.unwrap_or_else(|| panic!("no error: {words}")).to_owned()
}

#[test]
fn the_worker_that_failed_first_is_named_with_its_words() {
    for (way, code, words) in [
        ("model", 1, "exited with code 1"),
        ("model", 1, "after the start: its model has 3 layers instead of 2"),
        ("panic", 101, "no pixel is left"),
    ] {
        let output = end(way, &[]);
        let all = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{all}");
        assert!(error(&output).starts_with("rank 1 (pid "), "{all}");
        assert!(all.contains(words) && all.contains("ended because of it: ranks 0, 2"), "{all}");
        assert!(!all.contains("Error:"), "nothing is told by `Debug`: {all}");
    }
}

#[test]
fn without_a_report_it_is_named_as_well() {
    let output = end("model", &["plain"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(error(&output).starts_with("rank 1 (pid "), "{}", stderr(&output));
    assert!(error(&output).contains("its last words: Error: \"its model has 3"), "{}", stderr(&output));
}

#[test]
fn a_worker_that_hangs_is_the_culprit() {
    for more in [&[][..], &["plain"]] {
        let output = end("hang", more);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let error = error(&output);
        assert!(error.starts_with("rank 1 (pid ") && error.contains("blamed by"), "{}", stderr(&output));
        assert!(stderr(&output).contains("ended because of it: ranks 0, 2"), "{}", stderr(&output));
    }
}

#[test]
fn sources_are_told_and_wrong_input_has_its_code() {
    let output = end("sum", &[]);
    assert!(error(&output).contains("epoch 0 failed: "), "{}", stderr(&output));
    let output = end("input", &[]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(error(&output).starts_with("ranks 0-2 exited with code 2"), "{}", stderr(&output));
}

#[test]
fn warnings_are_seen_once_each_with_a_rank_whoever_has_started_the_workers() {
    let output = end("warn", &[]);
    let words = stderr(&output);
    assert!(output.status.success(), "{words}");
    for rank in 0..3 {
        assert_eq!(words.matches(&format!("[rank {rank}] [WARN")).count(), 1, "{words}");
    }
    // Like another launcher of several workers: each line has the rank.
    let port = kolo_testing::free_port().port();
    let start = |rank: &str| {
        let mut command = std::process::Command::new(example("ways_to_end"));
        command.arg("warn").env_remove("RUST_LOG").env("RANK", rank).env("WORLD_SIZE", "2");
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        command.stderr(std::process::Stdio::piped()).spawn().unwrap()
    };
    for (rank, worker) in [start("0"), start("1")].into_iter().enumerate() {
        let words = stderr(&worker.wait_with_output().unwrap());
        assert!(words.starts_with(&format!("[rank {rank}] [WARN ways_to_end] the barrier")), "{words}");
    }
}

#[test]
fn alone_it_prints_its_error_and_ends_with_its_code() {
    let output = std::process::Command::new(example("ways_to_end")).arg("input").output().unwrap();
    let words = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{words}");
    assert_eq!(words.lines().last(), Some("error: --lr -1: it must be greater than 0"));
}

/// Runs three workers of a trainer whose own code does this.
fn trial(folder: &std::path::Path, way: &str, more: &[&str]) -> Output {
    let program = example("trainer_trials");
    let launch = ["launch", "--nproc", "3"];
    let words = ["--", program.to_str().unwrap(), way, "run"];
    kolo(folder, &[&launch[..], more, &words].concat()).env_remove("RUST_LOG").output().unwrap()
}

/// Any worker that prepares sample 13 fails: after two of them the job stops, and keeps its work.
#[test]
fn a_sample_that_ends_worker_after_worker_ends_the_job_with_its_number() {
    // Restarts change nothing: no third worker tries a step that has ended two.
    for more in [&[][..], &["--max-restarts", "5"]] {
        ends_with_the_samples(more);
    }
}

fn ends_with_the_samples(more: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let output = trial(folder.path(), "poison", more);
    let words = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{words}");
    let told = words.lines().find(|line| line.contains("has ended one worker after another"));
    let told = told.unwrap_or_else(|| panic!("{words}"));
    let (step, rest) = told.split_once("step ").unwrap().1.split_once(' ').unwrap();
    let samples = rest.split_once("the samples in question: shard ").unwrap().1;
    let samples = samples.split_once(": ").unwrap().1;
    assert!(samples.split(|c: char| !c.is_ascii_digit()).any(|number| number == "13"), "{told}");
    assert_eq!(words.matches("thread 'kolo-prefetch'").count(), 2, "two workers have tried it: {words}");
    let alone = words.lines().find(|line| line.contains("exited with code 1: ")).unwrap_or_default();
    assert!(alone.contains("it prepared the samples of shard "), "{words}");
    let saved = folder.path().join(format!("run/checkpoints/step-{:08}", step.parse::<u64>().unwrap()));
    assert!(saved.is_dir() || step == "0", "{words}");
}

/// Rank 0 waits for seconds in a callback, while the others wait one second for a worker that only waits.
#[test]
fn a_worker_in_a_callback_is_not_taken_for_hung() {
    let folder = tempfile::tempdir().unwrap();
    let output = trial(folder.path(), "upload", &["--timeout", "1"]);
    let words = stderr(&output);
    assert!(output.status.success() && !words.contains("hangs; Kolo ends it"), "{words}");
    let uploads = std::fs::read_to_string(folder.path().join("run/uploads")).unwrap();
    assert_eq!(uploads, "epoch 1\nepoch 2\n", "{words}");
}
