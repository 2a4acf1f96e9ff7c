//! Exported weights, and runs that begin with them.

use std::fs;
use std::path::Path;

use super::program::{fail, kolo, stderr, succeed, summary};

/// Makes a short run that leaves a checkpoint after each of its two steps.
fn train(folder: &Path, model: &str, out: &str) {
    let job =
        ["--model", model, "--nproc", "1", "--batch-size", "8", "--steps", "2", "--checkpoint-steps", "1"];
    succeed(folder, &[&["train", "--out", out][..], &job].concat());
}

fn export<'a>(run: &'a str, format: &'a str, out: &'a str) -> [&'a str; 6] {
    ["export", run, "--format", format, "--out", out]
}

#[test]
fn a_run_begins_with_exported_weights_on_any_number_of_workers() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    train(folder, "small", "a");
    let said = succeed(folder, &export("a", "burn", "a.bpk"));
    assert!(said.contains("small after step 2") && said.contains("a.bpk.json"), "{said}");
    let text = fs::read_to_string(folder.join("a.bpk.json")).unwrap();
    let description: serde_json::Value = serde_json::from_str(&text).unwrap();
    let how = &description["preprocessing"];
    assert_eq!(
        (how["input_size"].to_string(), how["label_names"][9].as_str()),
        ("[1,28,28]".into(), Some("Ankle boot"))
    );
    assert!((how["mean"][0].as_f64().unwrap() - 0.286).abs() < 0.01, "{text}");
    succeed(folder, &[&export("a", "burn", "first.bpk")[..], &["--step", "1"]].concat());
    assert_ne!(fs::read(folder.join("first.bpk")).unwrap(), fs::read(folder.join("a.bpk")).unwrap());

    let sha256 = |out: &str, options: &[&str]| {
        let job = ["train", "--shards", "2", "--batch-size", "8", "--steps", "2", "--checkpoint-steps", "1"];
        succeed(folder, &[&job[..], &["--out", out], options].concat());
        summary(&folder.join(out))["weights_sha256"].to_string()
    };
    let one = sha256("one", &["--nproc", "1", "--init", "a.bpk"]);
    assert_eq!(sha256("two", &["--nproc", "2", "--init", "a.bpk"]), one);
    assert_ne!(sha256("without", &["--nproc", "2"]), one);
    // The configuration names the file, so a repetition needs it and a continuation does not.
    succeed(folder, &["train", "--config", "two/config.toml", "--out", "again"]);
    assert_eq!(summary(&folder.join("again"))["weights_sha256"].to_string(), one);
    fs::remove_file(folder.join("a.bpk")).unwrap();
    let (_, error) = fail(folder, &["train", "--config", "two/config.toml", "--out", "gone"]);
    assert!(error.contains("a.bpk: No such file") && !folder.join("gone").exists(), "{error}");
    fs::remove_dir_all(folder.join("two/checkpoints/step-00000002")).unwrap();
    fs::remove_file(folder.join("two/summary.json")).unwrap();
    succeed(folder, &["train", "--resume", "two"]);
    assert_eq!(summary(&folder.join("two"))["weights_sha256"].to_string(), one);
}

#[test]
fn what_cannot_be_exported_is_told_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    train(folder, "small", "a");
    succeed(folder, &export("a", "burn", "a.bpk"));
    let bytes = fs::read(folder.join("a.bpk")).unwrap();
    fs::write(folder.join("cut.bpk"), &bytes[..bytes.len() - 100]).unwrap();
    fs::write(folder.join("b.bpk.json"), "a user's own").unwrap();
    fs::create_dir(folder.join("empty")).unwrap();
    fs::copy(folder.join("a/config.toml"), folder.join("empty/config.toml")).unwrap();

    let step = [&export("a", "burn", "c.bpk")[..], &["--step", "7"]].concat();
    for (args, words) in [
        (
            &export("a", "torchvision", "c")[..],
            &["torchvision has no model `small`", "resnet18", "--format burn"][..],
        ),
        (&export("a", "burn", "a.bpk"), &["the file a.bpk exists", "--out"]),
        (&export("a", "burn", "b.bpk"), &["the file b.bpk.json exists"]),
        (&export("a", "burn", "no/such/folder.bpk"), &["no/such/folder.bpk"]),
        (&export("a/checkpoints", "burn", "c.bpk"), &["a/checkpoints is in the run folder a"]),
        (&export("empty", "burn", "c.bpk"), &["empty/checkpoints", "no checkpoint"]),
        (&step, &["a/checkpoints", "no checkpoint of step 7", "1, 2"]),
        (&["train", "--init", "cut.bpk"], &["cut.bpk: is damaged", "export it again"]),
        (
            &["train", "--init", "a/config.toml"],
            &["config.toml is not a file of weights", "torchvision, burn"],
        ),
        (
            &["train", "--init", "a.bpk", "--model", "resnet18"],
            &["a.bpk holds `conv1.weight` as [8, 1, 3, 3]"],
        ),
    ] {
        let (code, error) = fail(folder, args);
        assert!(code != 0 && error.contains("error:"), "{args:?}: {code} {error}");
        assert!(words.iter().all(|word| error.contains(word)), "{args:?}: {error}");
        assert!(!error.contains("panicked"), "{args:?}: {error}");
    }
    let runs = fs::read_dir(folder.join("runs")).unwrap().count();
    assert!(!folder.join("c.bpk").exists() && runs == 0, "what is refused leaves nothing");

    // A damaged checkpoint is passed over, unless it is named.
    let weights = folder.join("a/checkpoints/step-00000002/weights.safetensors");
    let mut data = fs::read(&weights).unwrap();
    let middle = data.len() / 2;
    data[middle] ^= 1;
    fs::write(&weights, data).unwrap();
    let (code, error) = fail(folder, &[&export("a", "burn", "d.bpk")[..], &["--step", "2"]].concat());
    assert!(code == 1 && error.contains("step-00000002/weights.safetensors: is damaged"), "{error}");
    let output = kolo(folder, &export("a", "burn", "d.bpk")).output().unwrap();
    let words = stderr(&output);
    assert!(
        output.status.success() && words.contains("is damaged") && words.contains("step-00000001"),
        "{words}"
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("after step 1,"));
}
