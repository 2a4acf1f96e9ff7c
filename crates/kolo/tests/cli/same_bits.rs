//! The same job ends in the same bits: with 1, 2, 3 or 4 workers, over sockets, interrupted and resumed.

use std::fs;

use kolo_ddp::optimizer::OPTIMIZERS;

use kolo_testing::{is_thorough, selected, wait_until};

use super::program::{kolo, noise_images, succeed, summary};

#[test]
fn any_number_of_workers_ends_in_the_same_weights() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, more: &[&str]| {
        let fixed = ["train", "--shards", "4", "--steps", "5", "--batch-size", "8", "--out", name];
        let output = succeed(folder.path(), &[&fixed[..], more].concat());
        assert!(output.contains("run folder"), "{output}");
        let summary = summary(&folder.path().join(name));
        for field in [
            "world_size", "shards", "epochs", "steps", "images_per_second", "steps_seconds",
            "step_seconds_p50", "step_seconds_p95", "comm_fraction", "exposed_comm_fraction", "train_loss",
            "test_accuracy", "peak_rss_bytes",
        ] {
            assert!(summary[field].is_number(), "{field}: {summary}");
        }
        (summary["weights_sha256"].clone(), summary["test_accuracy"].clone())
    };
    let one = run("one", &["--nproc", "1"]);
    assert_eq!(one.0.as_str().map(str::len), Some(64));
    assert_eq!(run("two", &["--nproc", "2"]), one);
    assert_eq!(run("three", &["--nproc", "3", "--bucket-cap-mb", "0.02"]), one);
    assert_eq!(run("four", &["--nproc", "4"]), one);
    assert_ne!(run("seed", &["--nproc", "2", "--seed", "1"]).0, one.0);

    // The configuration that a run leaves is enough to repeat it.
    succeed(folder.path(), &["train", "--config", "two/config.toml", "--out", "again"]);
    assert_eq!(summary(&folder.path().join("again"))["weights_sha256"], one.0);

    let run = folder.path().join("two");
    let metrics = fs::read_to_string(run.join("metrics.csv")).unwrap();
    assert_eq!(metrics.lines().count(), 2, "{metrics}");
    assert_eq!(fs::read_to_string(run.join("steps.jsonl")).unwrap().lines().count(), 5);
    assert!(fs::read_to_string(run.join("buckets.csv")).unwrap().lines().count() >= 2);
}

/// All that could depend on the division of work, at once: dropout, augmentation, batch normalization, a last
/// batch in which half of the shards are empty, worker counts that divide 8 shards and that do not, and more
/// workers than shards. A selection of the product of these; docs/verify.md has the command for all of it.
#[test]
fn numbers_of_workers_buckets_transports_and_algorithms_end_in_the_same_weights() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 36);
    let run = |number: usize, dropout: &str, nproc: &str, cap: &str, transport: &str, algorithm: &str| {
        let out = format!("run-{number}");
        let mut args = vec!["train", "--data", &data, "--shards", "8", "--batch-size", "2", "--steps", "4"];
        args.extend(["--dropout", dropout, "--warmup-steps", "0", "--verify-every", "1", "--out", &out]);
        args.extend(["--nproc", nproc, "--bucket-cap-mb", cap, "--transport", transport]);
        if !algorithm.is_empty() {
            args.extend(["--algorithm", algorithm]);
        }
        succeed(folder.path(), &args);
        let summary = summary(&folder.path().join(out));
        ["weights_sha256", "train_loss", "test_accuracy"].map(|field| summary[field].clone())
    };
    let one = run(0, "0.2", "1", "25", "shm", "");
    assert_ne!(run(1, "0", "1", "25", "shm", "")[0], one[0], "dropout drops something");
    let jobs = [
        ("3", "0.5", "shm", "direct"),
        ("2", "0.5", "tcp", "halving-doubling"),
        ("5", "25", "tcp", ""),
        ("9", "25", "shm", "direct"),
        ("1", "0.5", "tcp", ""),
        ("2", "25", "tcp", "direct"),
        ("2", "0.5", "shm", "halving-doubling"),
        ("8", "25", "shm", "halving-doubling"),
        ("8", "0.5", "tcp", "direct"),
        ("9", "0.5", "tcp", ""),
    ];
    for (number, (nproc, cap, transport, algorithm)) in selected(4, jobs).enumerate() {
        let other = run(number + 2, "0.2", nproc, cap, transport, algorithm);
        assert_eq!(other, one, "{nproc} workers, buckets of {cap} MiB, {transport}, {algorithm}");
    }
}

/// Normalization over the global batch, also if half of the shards have no images, and workers no shards.
#[test]
fn any_number_of_workers_in_step_ends_in_the_same_weights() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 36);
    let run = |name: &str, policy: &str, more: &[&str]| {
        let fixed = ["train", "--data", &data, "--shards", "8", "--batch-size", "2", "--steps", "4"];
        let policy = ["--batch-norm", policy, "--warmup-steps", "0", "--verify-every", "1", "--out", name];
        succeed(folder.path(), &[&fixed[..], &policy, more].concat());
        summary(&folder.path().join(name))["weights_sha256"].clone()
    };
    let one = run("one", "sync", &["--nproc", "1"]);
    assert_ne!(run("shard", "per-shard", &["--nproc", "1"]), one);
    assert_eq!(run("three", "sync", &["--nproc", "3", "--transport", "tcp", "--shares", "5,2,1"]), one);
    assert_eq!(run("nine", "sync", &["--nproc", "9"]), one);
}

/// Three steps in the first epoch, two in the second, one in the third; with the rest of the large-batch
/// recipe.
#[test]
fn a_batch_that_grows_ends_in_the_same_weights() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 36);
    let weights = |name: &str| summary(&folder.path().join(name))["weights_sha256"].clone();
    let run = |name: &str, more: &[&str]| {
        let job = ["train", "--data", &data, "--shards", "8", "--batch-size", "2", "--epochs", "4"];
        let recipe = ["--grow-batch", "1:2,2:2", "--scale-lr", "sqrt", "--base-batch", "64", "--zero-gamma"];
        let rate = ["--label-smoothing", "0.1", "--warmup-epochs", "1", "--schedule", "poly", "--out", name];
        succeed(folder.path(), &[&job[..], &recipe, &rate, more].concat());
        weights(name)
    };
    let one = run("one", &["--nproc", "1"]);
    assert_eq!(summary(&folder.path().join("one"))["steps"], 3 + 2 + 1 + 1);
    assert_eq!(run("two", &["--nproc", "2", "--bucket-cap-mb", "0.02", "--transport", "tcp"]), one);
    assert_eq!(run("three", &["--nproc", "3"]), one);
    // The files of the run are enough to continue from the middle of the second epoch.
    let text = fs::read_to_string(folder.path().join("one/config.toml")).unwrap();
    assert!(
        text.contains("grow_batch = [\"1:2\", \"2:2\"]") && text.contains("scaling = \"sqrt\""),
        "{text}"
    );
    run("cut", &["--nproc", "3", "--checkpoint-steps", "1", "--keep-checkpoints", "9"]);
    // On a busy machine a newer checkpoint may have replaced one that was not yet written.
    let written = |step: u64| folder.path().join(format!("cut/checkpoints/step-{step:08}"));
    let late: Vec<_> = (5..=7).map(written).filter(|path| path.exists()).collect();
    assert!(late.contains(&written(7)), "{late:?}");
    late.iter().for_each(|path| fs::remove_dir_all(path).unwrap());
    fs::remove_file(folder.path().join("cut/summary.json")).unwrap();
    succeed(folder.path(), &["train", "--resume", "cut", "--nproc", "2"]);
    assert_eq!(weights("cut"), one);
}

/// Averaged weights are evaluated, also within epochs; images are mixed.
#[test]
fn averages_of_weights_and_mixed_images_are_the_same_on_any_workers() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 36);
    let run = |name: &str, more: &[&str]| {
        let job = ["train", "--data", &data, "--shards", "8", "--batch-size", "2", "--epochs", "2"];
        let averaged =
            ["--ema", "0.9", "--mixup", "0.4", "--cutmix", "1", "--eval-steps", "2", "--out", name];
        succeed(folder.path(), &[&job[..], &averaged, more].concat());
        let summary = summary(&folder.path().join(name));
        (summary["weights_sha256"].clone(), summary["test_accuracy"].clone())
    };
    let one = run("one", &["--nproc", "1"]);
    assert_eq!(run("three", &["--nproc", "3"]), one);
    let metrics = fs::read_to_string(folder.path().join("one/metrics.csv")).unwrap();
    let epochs: Vec<&str> = metrics.lines().skip(1).filter_map(|line| line.split(',').next()).collect();
    assert_eq!(epochs, ["0.6666666666666666", "1", "1.3333333333333333", "2"]);
}

/// Each optimizer of the table, with its defaults and from the configuration that a run leaves.
#[test]
fn every_optimizer_ends_in_the_same_weights() {
    let folder = tempfile::tempdir().unwrap();
    let weights = |args: &[&str], name: &str| {
        succeed(folder.path(), &[&["train", "--out", name], args].concat());
        summary(&folder.path().join(name))["weights_sha256"].clone()
    };
    for optimizer in OPTIMIZERS.iter().map(|entry| entry.name) {
        let [one, two, again] = ["one", "two", "again"].map(|name| format!("{optimizer}-{name}"));
        let args = ["--shards", "2", "--steps", "2", "--batch-size", "8", "--optimizer", optimizer];
        let expected = weights(&[&args[..], &["--nproc", "1"]].concat(), &one);
        let split = ["--nproc", "2", "--bucket-cap-mb", "0.02", "--clip-norm", "1e6"];
        assert_eq!(weights(&[&args[..], &split].concat(), &two), expected, "{optimizer}");
        if is_thorough() {
            let config = format!("{two}/config.toml");
            assert_eq!(weights(&["--config", &config, "--nproc", "1"], &again), expected, "{optimizer}");
        }
    }
}

#[test]
fn workers_over_sockets_end_in_the_same_weights() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["train", "--steps", "3", "--batch-size", "8", "--nproc", "2", "--out"];
    succeed(folder.path(), &[&args[..], &["shm"]].concat());
    let tcp =
        kolo(folder.path(), &[&args[..], &["tcp"]].concat()).env("KOLO_TRANSPORT", "tcp").output().unwrap();
    assert!(tcp.status.success());
    let (shm, tcp) = (summary(&folder.path().join("shm")), summary(&folder.path().join("tcp")));
    assert_eq!((&shm["transport"], &tcp["transport"]), (&"shm".into(), &"tcp".into()));
    assert_eq!(shm["weights_sha256"], tcp["weights_sha256"]);
}

/// Killed without warning after its first checkpoint, then resumed by another number of workers.
#[test]
fn a_killed_run_resumes_to_the_same_weights() {
    let folder = tempfile::tempdir().unwrap();
    let args = [
        "train", "--epochs", "2", "--batch-size", "125", "--shards", "4", "--optimizer", "adamw", "--lr",
        "1e-3", "--no-decay", "norm,bias", "--group", "fc.*:lr_scale=2,beta1=0.8",
    ];
    succeed(folder.path(), &[&args[..], &["--out", "whole"]].concat());

    let mut interrupted = kolo(folder.path(), &[&args[..], &["--out", "cut"]].concat()).spawn().unwrap();
    let checkpoint = folder.path().join("cut/checkpoints/step-00000020");
    let has_ended = |job: &mut std::process::Child| job.try_wait().unwrap().is_some();
    wait_until("no checkpoint", || checkpoint.exists() || has_ended(&mut interrupted));
    interrupted.kill().unwrap();
    interrupted.wait().unwrap();
    assert!(!folder.path().join("cut/summary.json").exists(), "it was to be killed before its end");

    succeed(folder.path(), &["train", "--resume", "cut", "--nproc", "1"]);
    let (whole, cut) = (summary(&folder.path().join("whole")), summary(&folder.path().join("cut")));
    assert_eq!(whole["weights_sha256"], cut["weights_sha256"]);
    assert_eq!((&whole["test_accuracy"], &whole["train_loss"]), (&cut["test_accuracy"], &cut["train_loss"]));
    let lines = |name: &str, file: &str| {
        fs::read_to_string(folder.path().join(name).join(file)).unwrap().lines().count()
    };
    assert_eq!(lines("cut", "steps.jsonl"), lines("whole", "steps.jsonl"));
    assert_eq!(lines("cut", "metrics.csv"), lines("whole", "metrics.csv"));
}
