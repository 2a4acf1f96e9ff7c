//! Workers of unequal speed: shares by weight, a slow worker and its reason, shards that move; and always the
//! same weights.

use super::program::{fail, kolo, noise_images, stderr, succeed, summary};

#[test]
fn any_shares_end_in_the_same_weights() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 36);
    let run = |name: &str, more: &[&str]| {
        let fixed =
            ["train", "--data", &data, "--shards", "4", "--steps", "4", "--batch-size", "4", "--out", name];
        succeed(folder.path(), &[&fixed[..], more].concat());
        summary(&folder.path().join(name))["weights_sha256"].clone()
    };
    let one = run("one", &["--nproc", "1"]);
    assert_eq!(run("two", &["--nproc", "2", "--shares", "3,1"]), one);
    assert_eq!(run("three", &["--nproc", "3", "--shares", "0,0.7,0.3", "--transport", "tcp"]), one);
    // A configuration repeats its shares; with another number of workers it needs none.
    for nproc in ["2", "3"] {
        let out = format!("again-{nproc}");
        succeed(folder.path(), &["train", "--config", "two/config.toml", "--nproc", nproc, "--out", &out]);
        let again = summary(&folder.path().join(&out));
        assert_eq!((&again["weights_sha256"], &again["world_size"].to_string()[..]), (&one, nproc));
    }
    let config = std::fs::read_to_string(folder.path().join("again-2/config.toml")).unwrap();
    assert!(config.contains("shares = [3.0, 1.0]"), "{config}");
}

/// Two looks of 20 steps, after a first step that is not measured.
const STEPS: &str = "45";

#[test]
fn a_slow_worker_is_named_and_relieved_of_shards() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 400);
    let run = |name: &str, nproc: &str, more: &[&str]| {
        let fixed = [
            "train", "--data", &data, "--shards", "4", "--steps", STEPS, "--batch-size", "2", "--nproc",
            nproc,
        ];
        let output = kolo(folder.path(), &[&fixed[..], &["--out", name], more].concat()).output().unwrap();
        assert!(output.status.success(), "{name}: {}", stderr(&output));
        (summary(&folder.path().join(name))["weights_sha256"].clone(), stderr(&output))
    };
    let (expected, words) = run("alone", "1", &[]);
    assert!(!words.contains("as the others"), "{words}");

    let (weights, words) = run("compute", "2", &["--slow", "1:compute:80"]);
    assert_eq!(weights, expected);
    assert_eq!(words.matches("rank 1 takes").count(), 1, "told once: {words}");
    assert!(words.contains("it computes for") && !words.contains("shards go"), "{words}");

    let (weights, words) = run("data", "2", &["--slow", "0:data:80"]);
    assert_eq!(weights, expected);
    assert!(words.contains("rank 0 takes") && words.contains("it waits for data for"), "{words}");

    let (weights, words) = run("rebalance", "2", &["--slow", "1:compute:80", "--straggler", "rebalance"]);
    assert_eq!(weights, expected);
    assert!(words.contains("shards go from [2, 2] to [3, 1]"), "{words}");
}

/// Of three workers rank 1 is slow and leaves. The next worker of that rank is slow as well, but two workers
/// are the minimum.
#[test]
fn a_slow_worker_is_dropped_as_long_as_enough_are_left() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 400);
    let args = ["train", "--data", &data, "--shards", "3", "--steps", "100", "--batch-size", "2"];
    let run = |name: &str, more: &[&str]| {
        let output = kolo(folder.path(), &[&args[..], &["--out", name], more].concat()).output().unwrap();
        assert!(output.status.success(), "{name}: {}", stderr(&output));
        (summary(&folder.path().join(name)), stderr(&output))
    };
    let (expected, _) = run("alone", &["--nproc", "1"]);
    let slow = ["--slow", "1:compute:100", "--straggler", "drop", "--min", "2"];
    let (found, words) = run("drop", &[&slow[..], &["--nproc", "3"]].concat());
    assert_eq!(found["weights_sha256"], expected["weights_sha256"], "{words}");
    assert_eq!(found["train_loss"], expected["train_loss"], "{words}");
    assert!(words.contains("generation 2 of 2 workers: rank 1 is dropped: rank 1 takes"), "{words}");
    assert!(words.contains("rank 1 stays") && words.contains("--min 2"), "{words}");
    assert!(!words.contains("generation 3"), "nobody comes in its place: {words}");

    // Workers of another launcher.
    let fixed = kolo(folder.path(), &[&args[..], &["--out", "fixed", "--straggler", "drop"]].concat())
        .envs([("RANK", "0"), ("WORLD_SIZE", "1")])
        .output()
        .unwrap();
    let words = stderr(&fixed);
    assert!(fixed.status.code() == Some(2) && words.contains("--straggler drop: these workers"), "{words}");
    assert!(!folder.path().join("fixed").exists(), "a refused run leaves no folder");
}

/// Halving and doubling needs equal shares: shards stay, training continues, and the output has the reason.
#[test]
fn shards_stay_where_the_algorithm_cannot_add_them() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 400);
    let args =
        ["train", "--data", &data, "--shards", "4", "--steps", STEPS, "--batch-size", "2", "--nproc", "2"];
    let more = [
        "--slow", "1:compute:80", "--straggler", "rebalance", "--algorithm", "halving-doubling", "--out",
        "stays",
    ];
    let output = kolo(folder.path(), &[&args[..], &more].concat()).output().unwrap();
    let words = stderr(&output);
    assert!(output.status.success(), "{words}");
    assert!(words.contains("shards stay where they are") && words.contains("halving-doubling"), "{words}");
}

/// With divided parameters passes wait for other ranks' values, so the refusal comes before the first pass.
#[test]
fn divided_parameters_are_refused_at_the_start_where_the_algorithm_cannot_add_the_shares() {
    let folder = tempfile::tempdir().unwrap();
    let args =
        ["train", "--model", "mlp", "--steps", STEPS, "--nproc", "2", "--shards", "4", "--shares", "1,3"];
    let more = ["--shard", "parameters", "--algorithm", "halving-doubling", "--out", "run"];
    let (code, words) = fail(folder.path(), &[&args[..], &more].concat());
    assert!(code == 2 && words.contains("halving-doubling cannot be used here"), "{words}");
    assert!(!words.contains("2 workers over"), "training has begun: {words}");
    // An algorithm that cannot be used at all is refused as well, and the corrected run may have the folder.
    let nothing_to_divide = ["train", "--model", "mlp", "--steps", STEPS, "--nproc", "2", "--out", "run"];
    let (code, words) =
        fail(folder.path(), &[&nothing_to_divide[..], &["--algorithm", "hierarchical"]].concat());
    assert!(code == 2 && words.contains("hierarchical cannot be used here"), "{words}");
    assert!(!folder.path().join("run").exists(), "{words}");
}

#[test]
fn wrong_weights_are_told_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    for (args, words) in [
        (&["--shares", "3,1,1"][..], &["--shares 3,1,1", "3 weights for 2 workers"][..]),
        (&["--nproc", "3", "--shares", "3,1"], &["--shares 3,1", "2 weights for 3 workers"]),
        (&["--shares", "0,0"], &["--shares 0,0", "nobody would compute"]),
        (&["--shares=3,-1"], &["--shares 3,-1", "-1"]),
        (&["--shares", "3,inf"], &["--shares 3,inf", "inf"]),
        (&["--shares", "3;1"], &["--shares", "3;1"]),
        (&["--straggler", "kill"], &["--straggler `kill`", "warn, rebalance, drop"]),
        (&["--slow", "1:sleep:3"], &["--slow", "RANK:compute:MILLISECONDS"]),
    ] {
        let (code, error) = fail(folder.path(), &[&["train"], args].concat());
        assert!(code == 2 && error.starts_with("error:"), "{args:?}: {code} {error}");
        assert!(words.iter().all(|word| error.contains(word)), "{args:?}: {error}");
    }
    assert!(!folder.path().join("runs").exists(), "a refused run leaves no folder");
}
