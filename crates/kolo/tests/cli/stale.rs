//! Asynchronous training through servers (`--sync stale:K`), by processes: every step reported, resumed with
//! other servers, ended by a death.

use std::fs;

use kolo_testing::{alive, send};

use super::program::{
    all_steps, cut_after_first_checkpoint, fail, noise_images, start, succeed, summary, workers,
};

/// Six steps over two epochs, the first of which ends with a short batch.
#[test]
fn a_run_tells_every_step_and_how_stale_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 20);
    let run = |name: &str, more: &[&str]| {
        let fixed = ["train", "--data", &data, "--shards", "4", "--batch-size", "2", "--steps", "6"];
        let output =
            succeed(folder.path(), &[&fixed[..], &["--warmup-steps", "0", "--out", name], more].concat());
        let steps = all_steps(&folder.path().join(name), 0..6);
        let losses: Vec<f64> = steps.iter().map(|step| step["loss"].as_f64().unwrap()).collect();
        (summary(&folder.path().join(name)), losses, output)
    };
    let (every_step, expected, _) = run("every", &["--nproc", "1"]);
    assert_eq!(every_step.get("staleness"), None);
    for (name, transport, servers) in [("shm", "shm", "1"), ("tcp", "tcp", "2")] {
        let more = ["--nproc", "2", "--servers", servers, "--transport", transport];
        let (zero, losses, output) = run(name, &[&more[..], &["--sync", "stale:0"]].concat());
        assert_eq!(zero["staleness"]["pulls"], serde_json::json!([12]), "{zero}");
        assert!(output.contains("0.00 steps behind on average, 0 at most, in 12 pulls"), "{output}");
        for (loss, expected) in losses.iter().zip(&expected) {
            assert!((loss / expected - 1.0).abs() < 1e-3, "{losses:?} {expected:?}");
        }
        let name = format!("{name}-2");
        let (two, losses, _) = run(&name, &[&more[..], &["--sync", "stale:2"]].concat());
        let most = two["staleness"]["most"].as_u64().unwrap();
        assert!(most <= 2 && losses.iter().all(|loss| loss.is_finite()), "{two}");
        assert_eq!(two["sync"], "stale:K=2");
    }
}

#[test]
fn a_run_is_resumed_with_other_servers() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 20);
    let fixed = ["train", "--data", &data, "--shards", "2", "--batch-size", "2", "--epochs", "4"];
    let args = [&fixed[..], &["--optimizer", "adamw", "--sync", "stale:3", "--nproc", "1"]].concat();
    // With one worker nothing depends on relative speed.
    succeed(folder.path(), &[&args[..], &["--out", "whole"]].concat());
    succeed(folder.path(), &[&args[..], &["--servers", "2", "--out", "cut"]].concat());
    let weights = || summary(&folder.path().join("cut"))["weights_sha256"].clone();
    assert_eq!(weights(), summary(&folder.path().join("whole"))["weights_sha256"]);
    // The last epochs are repeated.
    cut_after_first_checkpoint(&folder.path().join("cut"));
    succeed(folder.path(), &["train", "--resume", "cut", "--servers", "3"]);
    assert_eq!(weights(), summary(&folder.path().join("whole"))["weights_sha256"]);
}

#[test]
fn a_death_of_a_worker_or_a_server_ends_the_job() {
    for victim in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        let args = ["train", "--nproc", "2", "--servers", "1", "--sync", "stale:2", "--epochs", "100"];
        let mut job = start(folder.path(), &[&args[..], &["--out", "run"]].concat());
        let steps = || fs::read_to_string(folder.path().join("run/steps.jsonl")).unwrap_or_default();
        assert!(job.wait("no step", |_| !steps().is_empty()));
        let all = workers(&job.process);
        assert_eq!(all.len(), 3);
        send("KILL", &[all[victim]]);
        let (status, words) = job.end();
        assert!(!status.success());
        assert!(words.contains(&format!("rank {victim} ")) && words.contains("SIGKILL"), "{words}");
        assert!(all.iter().all(|pid| !alive(*pid)), "{words}");
    }
}

/// The workers meet at the end of an epoch only, and there the run saves and ends.
#[test]
fn a_run_that_is_asked_to_end_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 200);
    let args = ["train", "--data", &data, "--nproc", "2", "--servers", "1", "--sync", "stale:2"];
    let more = ["--batch-size", "2", "--epochs", "1000", "--slow", "1:compute:20", "--out", "run"];
    let mut job = start(folder.path(), &[&args[..], &more].concat());
    let steps = || fs::read_to_string(folder.path().join("run/steps.jsonl")).unwrap_or_default();
    assert!(job.wait("no step", |_| !steps().is_empty()));
    send("TERM", &[job.process.id()]);
    let (status, words) = job.end();
    assert_eq!(status.code(), Some(143), "{words}");
    let told = "with --sync stale:K=2 it saves and ends where all workers meet next: after step ";
    let step = words.split(told).nth(1).and_then(|rest| rest.split(' ').next()).expect(&words);
    let step: usize = step.parse().unwrap();
    assert!(step.is_multiple_of(50), "fifty steps are an epoch: {words}");
    assert!(folder.path().join(format!("run/checkpoints/step-{step:08}")).exists(), "{words}");
}

#[test]
fn what_makes_no_sense_is_told_before_workers_start() {
    let folder = tempfile::tempdir().unwrap();
    let stale = ["train", "--sync", "stale:2", "--servers", "1"];
    for (args, words) in [
        (
            &["train", "--sync", "stale:2", "--servers", "0"][..],
            "--sync stale:K=2: the weights are on servers, of which there are none",
        ),
        (
            &["train", "--sync", "local", "--servers", "1"],
            "--sync local: it sends too rarely for summation servers to save anything; leave --servers out",
        ),
        (&["check", "--sync", "diloco", "--servers", "1"], "leave --servers out"),
        (&[&stale[..], &["--min", "1"]].concat(), "each worker and server has state that no other has"),
        (&[&stale[..], &["--clip-norm", "1"]].concat(), "it has no gradient of all shards"),
        (&["train", "--sync", "stale:half"], "stale has no setting `half`; it has K"),
        (&["chaos", "--servers", "1", "--", "--sync", "stale:2"], "it promises no bits"),
        (&["verify", "--steps", "2", "--sync", "stale:2"], "it promises no bits"),
    ] {
        let (_, told) = fail(folder.path(), args);
        assert!(told.contains(words), "{told}");
    }
}
