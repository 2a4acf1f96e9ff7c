//! Islands that rarely synchronize: the same weights on any number of workers, and few bytes.

use kolo_testing::{selected, send};

use super::program::{all_steps, cut_after_first_checkpoint, fail, noise_images, start, succeed, summary};

const MODES: [&str; 3] = ["local:H=2", "post-local:H=2,T=1", "diloco:H=3"];

/// Six steps with a short batch in the middle, at the end of an epoch, which ends a round.
#[test]
fn any_number_of_workers_ends_in_the_same_weights() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 20);
    let run = |name: String, sync: &str, more: &[&str]| {
        let fixed = ["train", "--data", &data, "--shards", "4", "--batch-size", "2", "--steps", "6"];
        let sync = ["--warmup-steps", "0", "--sync", sync, "--out", &name];
        let output = succeed(folder.path(), &[&fixed[..], &sync, more].concat());
        let steps = all_steps(&folder.path().join(&name), 0..6);
        let losses: Vec<f64> = steps.iter().map(|step| step["loss"].as_f64().unwrap()).collect();
        (summary(&folder.path().join(name)), losses, output)
    };
    let (every_step, ..) = run("every".into(), "every-step", &["--nproc", "1"]);
    assert_eq!(every_step["synchronized_steps"], 6);
    for (n, sync) in MODES.iter().enumerate() {
        let (one, losses, output) = run(format!("{n}-one"), sync, &["--nproc", "1", "--islands", "4"]);
        assert_ne!(one["weights_sha256"], every_step["weights_sha256"]);
        let synchronized = one["synchronized_steps"].as_u64().unwrap();
        assert!((2..6).contains(&synchronized), "{one}");
        assert!(output.contains(&format!("in {synchronized} of 6 steps ({sync})")), "{output}");
        let share = one["summed_bytes"].as_f64().unwrap() / every_step["summed_bytes"].as_f64().unwrap();
        assert!((share - synchronized as f64 / 6.0).abs() < 1e-9, "{share}: {one}");
        for (world, more) in [
            ("2", &["--bucket-cap-mb", "0.5", "--transport", "tcp"][..]),
            ("3", &["--bucket-cap-mb", "25"]),
            ("4", &["--bucket-cap-mb", "0.5"]),
            ("5", &[]),
        ] {
            let (other, other_losses, _) =
                run(format!("{n}-{world}"), sync, &[&["--nproc", world], more].concat());
            for field in ["weights_sha256", "train_loss", "test_accuracy", "summed_bytes"] {
                assert_eq!(other[field], one[field], "{sync}, {world} workers");
            }
            assert_eq!(other_losses, losses, "{sync}, {world} workers");
        }
    }
}

#[test]
fn a_run_that_is_resumed_ends_in_the_same_weights() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 20);
    let fixed = ["train", "--data", &data, "--shards", "4", "--batch-size", "2", "--epochs", "4"];
    for (n, sync) in MODES.iter().enumerate() {
        let weights = |name: &str, more: &[&str]| {
            succeed(folder.path(), more);
            summary(&folder.path().join(name))["weights_sha256"].clone()
        };
        let (whole, cut) = (format!("{n}-whole"), format!("{n}-cut"));
        let args = [&fixed[..], &["--sync", sync, "--islands", "2", "--optimizer", "adamw"]].concat();
        let expected = weights(&whole, &[&args[..], &["--out", &whole, "--nproc", "1"]].concat());
        weights(&cut, &[&args[..], &["--out", &cut, "--nproc", "3"]].concat());
        // Other workers repeat the last epochs.
        cut_after_first_checkpoint(&folder.path().join(&cut));
        assert_eq!(weights(&cut, &["train", "--resume", &cut, "--nproc", "2"]), expected, "{sync}");
    }
}

/// All steps synchronize. Each is reported once, though it ends with the next one: with an epoch of three
/// steps, and a checkpoint in its middle.
#[test]
fn late_updates_end_in_the_same_weights_on_any_number_of_workers_also_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 20);
    let run = |name: &str, sync: &str, more: &[&str]| {
        let fixed = ["train", "--data", &data, "--shards", "4", "--batch-size", "2", "--epochs", "2"];
        let fixed = [&fixed[..], &["--warmup-steps", "0", "--sync", sync, "--clip-norm", "1", "--out", name]];
        succeed(folder.path(), &[&fixed.concat(), more].concat());
        let path = folder.path().join(name);
        let steps = all_steps(&path, 0..6);
        let known = |step: &serde_json::Value| [step["loss"].clone(), step["gradient_norm"].clone()];
        let known: Vec<_> = steps.iter().map(known).collect();
        assert!(known.iter().flatten().all(|value| value.as_f64().is_some()), "{steps:?}");
        (summary(&path), known)
    };
    let (every_step, _) = run("every", "every-step", &["--nproc", "1"]);
    let (one, known) = run("one", "delayed:1", &["--nproc", "1", "--checkpoint-steps", "2"]);
    assert_ne!(one["weights_sha256"], every_step["weights_sha256"]);
    for field in ["synchronized_steps", "summed_bytes"] {
        assert_eq!(one[field], every_step[field]);
    }
    for (world, more) in
        [("2", &["--bucket-cap-mb", "0.5", "--transport", "tcp"][..]), ("3", &["--bucket-cap-mb", "25"])]
    {
        let more = [&["--nproc", world, "--checkpoint-steps", "2"], more].concat();
        let (other, other_known) = run(world, "delayed:1", &more);
        for field in ["weights_sha256", "train_loss", "test_accuracy", "summed_bytes"] {
            assert_eq!(other[field], one[field], "{world} workers");
        }
        assert_eq!(other_known, known, "{world} workers");
    }
    // Other workers repeat the steps after the first checkpoint.
    let cut = folder.path().join("3");
    cut_after_first_checkpoint(&cut);
    succeed(folder.path(), &["train", "--resume", "3", "--nproc", "2"]);
    assert_eq!(summary(&cut)["weights_sha256"], one["weights_sha256"]);
}

/// Asked to end wherever it is, and resumed by another number of workers. `local` ends its round before.
#[test]
fn a_run_that_is_asked_to_end_anywhere_goes_on_to_the_same_weights() {
    let fixed = [
        "train", "--model", "mlp", "--shards", "6", "--steps", "150", "--batch-size", "8", "--warmup-steps",
        "5", "--checkpoint-epochs", "100", "--slow", "0:compute:5",
    ];
    let cases = [
        &["--sync", "delayed:1", "--ema", "0.99"][..],
        &["--sync", "local:H=8", "--islands", "2"],
        &["--sync", "delayed:1", "--reduction", "bf16", "--optimizer", "lamb", "--transport", "tcp"],
        &["--sync", "diloco:H=8", "--islands", "3"],
        &["--reduction", "ef-sign"],
        &["--tune"],
        &["--straggler", "rebalance"],
    ];
    for more in selected(1, cases) {
        let folder = tempfile::tempdir().unwrap();
        let args = [&fixed[..], more].concat();
        succeed(folder.path(), &[&args[..], &["--nproc", "1", "--out", "whole"]].concat());
        let mut job = start(folder.path(), &[&args[..], &["--nproc", "3", "--out", "run"]].concat());
        let steps = || std::fs::metadata(folder.path().join("run/steps.jsonl")).map_or(0, |file| file.len());
        assert!(job.wait("it does not train", |_| steps() > 0), "it ended before it trained");
        send("TERM", &[job.process.id()]);
        let (status, words) = job.end();
        assert!(status.code() == Some(143) && words.contains("--resume run` continues after"), "{words}");
        succeed(folder.path(), &["train", "--resume", "run", "--nproc", "2"]);
        let [whole, run] = ["whole", "run"].map(|name| summary(&folder.path().join(name)));
        for field in ["weights_sha256", "train_loss", "test_accuracy"] {
            assert_eq!(whole[field], run[field], "{more:?}: {words}");
        }
        all_steps(&folder.path().join("run"), 0..150);
    }
}

#[test]
fn what_makes_no_sense_is_told_before_workers_start() {
    let folder = tempfile::tempdir().unwrap();
    for (args, words) in [
        (&["--sync", "often"][..], "unknown mode of synchronization `often`; known are every-step, local"),
        (&["--sync", "local:steps=3"], "local has no setting `steps`; it has H, restart_inner"),
        (&["--sync", "local", "--islands", "3", "--shards", "4"], "give a number that divides the 4 shards"),
        (&["--islands", "2"], "--sync every-step: it has no islands"),
        (&["--sync", "local", "--batch-norm", "sync"], "it has no batch of all shards"),
        (&["--sync", "delayed:2"], "steps of delayed is 2; it must be a whole number from 1 to 1"),
        (&["--sync", "delayed:1", "--reduction", "ef-sign"], "what the reduction has kept of the one before"),
    ] {
        let (_, told) = fail(folder.path(), &[&["train"], args].concat());
        assert!(told.contains(words), "{told}");
    }
}
