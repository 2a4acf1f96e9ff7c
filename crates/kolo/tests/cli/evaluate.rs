//! `kolo evaluate`.

use std::fs;
use std::path::Path;

use image::{GrayImage, Luma};
use serde_json::Value;

use kolo_testing::selected;

use super::program::{fail, kolo, noise_images, stderr, succeed, summary};

/// Makes a short run that leaves checkpoints and its best one.
fn train(folder: &Path, data: &str, more: &[&str]) {
    let args =
        ["train", "--nproc", "2", "--data", data, "--batch-size", "4", "--epochs", "3", "--out", "run"];
    succeed(folder, &[&args[..], &["--best-metric", "accuracy"], more].concat());
}

fn evaluated(folder: &Path, args: &[&str]) -> Value {
    let told = succeed(folder, &[&["evaluate", "--json", "--repeats", "0"], args].concat());
    serde_json::from_str(&told).unwrap()
}

/// Returns the accuracy after each epoch, as the run's file shows it.
fn accuracies(run: &Path) -> Vec<String> {
    let text = fs::read_to_string(run.join("metrics.csv")).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let column = lines.next().unwrap().iter().position(|name| *name == "test_accuracy").unwrap();
    lines.map(|columns| columns[column].to_string()).collect()
}

#[test]
fn weights_score_what_their_run_has_measured() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let data = noise_images(folder, 64);
    let jobs = [
        ("f32", &["--model", "small"][..]),
        ("bf16", &["--model", "mlp", "--precision", "bf16", "--test-batch-size", "7"]),
        ("f32", &["--model", "resnet18", "--stem", "small", "--steps", "2"]),
    ];
    for (precision, options) in selected(2, jobs) {
        train(folder, &data, options);
        let run = folder.join("run");
        let expected = summary(&run)["test_accuracy"].clone();
        let steps = summary(&run)["steps"].clone();
        let last = format!("run/checkpoints/step-{:08}", steps.as_u64().unwrap());
        succeed(folder, &["export", "run", "--format", "burn", "--out", "run/exported"]);
        for path in ["run", &last, "run/exported"] {
            // A file does not name its data.
            let found = evaluated(folder, &[path, "--data", &data, "--precision", precision]);
            assert_eq!((&found["test_accuracy"], &found["step"]), (&expected, &steps), "{path}: {found}");
            assert_eq!(found["test_images"], 20);
        }
        let found = evaluated(folder, &["run"]);
        assert_eq!((&found["test_accuracy"], &found["model"]), (&expected, &options[1].into()));
        // Of each class as well, and the same samples are the most wrong ones.
        assert_eq!(found["classification"], summary(&run)["classification"]);
        // Checkpoints of earlier epochs.
        let all = accuracies(&run);
        let best = all.iter().map(|accuracy| accuracy.parse().unwrap()).fold(0.0, f64::max);
        let found = evaluated(folder, &["run", "--best"]);
        assert_eq!(found["test_accuracy"].as_f64(), Some(best), "{all:?}");
        assert_eq!(summary(&run)["best"]["test_accuracy"].as_f64(), Some(best), "{all:?}");
        fs::remove_dir_all(&run).unwrap();
    }
}

#[test]
fn latency_is_told_for_each_batch_size() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 64);
    train(folder.path(), &data, &["--model", "mlp"]);
    let args = ["evaluate", "run", "--batch-sizes", "1,30", "--repeats", "20"];
    let found: Value =
        serde_json::from_str(&succeed(folder.path(), &[&args[..], &["--json"]].concat())).unwrap();
    let latency = found["latency"].as_array().unwrap();
    assert_eq!(latency.iter().map(|of| of["batch_size"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 30]);
    for of in latency {
        let number = |name: &str| of[name].as_f64().unwrap();
        assert!(number("p50_ms") > 0.0 && number("p50_ms") <= number("p95_ms"), "{of}");
        assert!(number("p95_ms") <= number("p99_ms") && number("images_per_second") > 0.0, "{of}");
        assert_eq!(of["repeats"], 20);
    }
    let told = succeed(folder.path(), &args);
    assert!(told.contains("test accuracy ") && told.contains("of the 20 test images"), "{told}");
    // Ten classes, and the three most wrong samples, besides.
    assert_eq!(told.lines().count(), 6 + 2 + 10 + 3, "{told}");
}

#[test]
fn what_cannot_be_evaluated_is_told_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let data = noise_images(folder, 64);
    train(folder, &data, &["--model", "mlp"]);
    succeed(folder, &["export", "run", "--format", "burn", "--out", "mlp.bpk"]);
    fs::copy(folder.join("mlp.bpk"), folder.join("alone.bpk")).unwrap();
    fs::copy(folder.join("mlp.bpk"), folder.join("odd.bpk")).unwrap();
    fs::write(folder.join("odd.bpk.json"), "{}").unwrap();
    fs::create_dir(folder.join("empty")).unwrap();
    fs::create_dir(folder.join("new")).unwrap();
    fs::copy(folder.join("run/config.toml"), folder.join("new/config.toml")).unwrap();
    for (args, words) in [
        (&["nowhere"][..], &["nowhere: No such file"][..]),
        (&["empty"], &["empty is no run folder", "no config.toml"]),
        (&["new"], &["new/checkpoints holds no checkpoint"]),
        (&["run", "--step", "7"], &["no checkpoint of step 7"]),
        (&["mlp.bpk", "--best"], &["mlp.bpk is no run folder"]),
        (&["run", "--model", "small"], &["has no tensor `conv1.weight`", "another model"]),
        (&["run", "--model", "nonesuch"], &["unknown model `nonesuch`"]),
        (&["run", "--data", "nonesuch"], &["nonesuch"]),
        (&["run", "--precision", "f7"], &["--precision `f7`"]),
        (&["run", "--batch-sizes", "0"], &["give numbers of images"]),
        (&["run", "--batch-sizes", "8,1000000000000"], &["--batch-sizes 1000000000000", "20 test images"]),
        (&["/dev/zero", "--model", "mlp"], &["/dev/zero: is no regular file"]),
        (&["run/config.toml"], &["config.toml is not a file of weights"]),
        (&["alone.bpk"], &["alone.bpk.json", "--model and --data"]),
        (&["odd.bpk"], &["odd.bpk.json: is damaged"]),
    ] {
        let (code, error) = fail(folder, &[&["evaluate"], args].concat());
        assert!(code != 0 && error.starts_with("error:"), "{args:?}: {code} {error}");
        assert!(words.iter().all(|word| error.contains(word)), "{args:?}: {error}");
        assert!(!error.contains("panicked"), "{args:?}: {error}");
    }
    let found = evaluated(folder, &["alone.bpk", "--model", "mlp", "--data", &data]);
    assert_eq!(
        (&found["test_accuracy"], &found["step"]),
        (&summary(&folder.join("run"))["test_accuracy"], &Value::Null)
    );
}

/// Writes images of two classes into the parts `train` and `test`; returns the bytes of one.
fn two_classes(folder: &Path) -> Vec<u8> {
    let value = |x: u32, y: u32, at: u32| Luma([((x * 7 + y * 13 + at * 29) % 256) as u8]);
    for class in ["train/a", "train/b", "test/a", "test/b"] {
        fs::create_dir_all(folder.join(class)).unwrap();
        for at in 0..4 {
            let image = GrayImage::from_fn(20, 20, |x, y| value(x, y, at));
            image.save(folder.join(format!("{class}/{at}.png"))).unwrap();
        }
    }
    fs::read(folder.join("test/b/3.png")).unwrap()
}

#[test]
fn the_user_reads_which_data_is_evaluated() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let good = two_classes(&folder.join("images"));
    let damaged = ["train/a/0.png", "test/b/3.png"].map(|file| folder.join("images").join(file));
    let damage = || damaged.iter().for_each(|file| fs::write(file, &good[..good.len() / 2]).unwrap());
    let restore = || damaged.iter().for_each(|file| fs::write(file, &good).unwrap());
    let train = |more: &[&str]| {
        let data = ["train", "--data", "folder:images", "--size", "32", "--model", "small", "--nproc", "1"];
        succeed(folder, &[&data[..], &["--batch-size", "4", "--epochs", "1"], more].concat());
    };
    let evaluated = |run: &str| {
        let output = kolo(folder, &["evaluate", run, "--repeats", "0", "--json"]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        (found["test_images"].as_u64().unwrap(), stderr(&output))
    };
    train(&["--out", "whole"]);
    assert_eq!(evaluated("whole"), (8, String::new()));
    damage();
    let (code, told) = fail(folder, &["evaluate", "whole"]);
    assert!(code == 2 && told.contains("images/test/b/3.png is not a whole image"), "{told}");
    assert!(told.ends_with("; restore or remove the file\n"), "{told}");

    train(&["--skip-unreadable", "--out", "skipping"]);
    let skipped = "warning: Kolo skips 2 unreadable files: train/a/0.png, test/b/3.png\n";
    assert_eq!(evaluated("skipping"), (7, skipped.into()));
    restore();
    let (images, told) = evaluated("skipping");
    let changed =
        "warning: the test data has changed since these weights were saved: it was 7 samples (content ";
    assert!(
        images == 8 && told.starts_with(changed) && told.contains(", and is 8 samples (content "),
        "{told}"
    );
    fs::remove_file(&damaged[1]).unwrap();
    let (images, told) = evaluated("whole");
    let changed =
        "warning: the test data has changed since these weights were saved: it was 8 samples (content ";
    assert!(images == 7 && told.starts_with(changed), "{told}");
    // Other data is what the user has asked for.
    let own = ["evaluate", "whole", "--data", "folder:images/test", "--repeats", "0"];
    let output = kolo(folder, &own).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", stderr(&output));
}
