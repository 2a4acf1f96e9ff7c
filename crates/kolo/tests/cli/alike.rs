//! Workers started by hand with different options get an error that names the difference. A resumed run gets
//! one if its data changed.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use kolo_testing::free_port;

use super::program::{fail, kolo, noise_images, stderr, succeed, summary};

const RUN: [&str; 7] = ["train", "--shards", "2", "--batch-size", "8", "--out", "run"];

/// Starts two workers with different options. Returns their exit codes and errors.
pub fn two(folder: &Path, first: &[&str], second: &[&str]) -> [(Option<i32>, String); 2] {
    let port = free_port().port().to_string();
    let workers = [("0", first), ("1", second)].map(|(rank, more)| {
        let mut worker = kolo(folder, &[&RUN[..], more].concat());
        worker.envs([
            ("RANK", rank),
            ("WORLD_SIZE", "2"),
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", &port),
        ]);
        worker.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    });
    workers.map(|worker| {
        let output = worker.wait_with_output().unwrap();
        (output.status.code(), stderr(&output))
    })
}

/// Copies the images into a folder of their own, with another label for one of them.
fn relabeled(folder: &Path, data: &str, name: &str) -> String {
    let (kind, from) = data.split_once(':').unwrap();
    let to = folder.join(name);
    fs::create_dir(&to).unwrap();
    for file in fs::read_dir(from).unwrap().map(Result::unwrap) {
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
    let labels = to.join("train-labels-idx1-ubyte");
    let mut bytes = fs::read(&labels).unwrap();
    let last = bytes.last_mut().unwrap();
    *last = (*last + 1) % 10;
    fs::write(labels, bytes).unwrap();
    format!("{kind}:{}", to.display())
}

#[test]
fn workers_with_other_options_or_data_are_refused_before_the_first_step() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 40);
    let other = relabeled(folder.path(), &data, "other");
    let usual = ["--data", data.as_str(), "--model", "mlp", "--epochs", "1"];
    for (option, words) in [
        (&["--no-augment"][..], "augment is true on rank 0 and false on rank 1;"),
        (&["--dropout", "0.5"], "dropout is 0.0 on rank 0 and 0.5 on rank 1;"),
        (&["--label-smoothing", "0.1"], "large_batch.label_smoothing is 0.0 on rank 0 and 0.1 on rank 1;"),
        (&["--steps", "3"], "steps is nothing on rank 0 and 3 on rank 1;"),
        (&["--data", &other], "the training data is 40 samples (content "),
    ] {
        // Options must not repeat.
        let (first, second) = match option[0] {
            "--data" => (usual.to_vec(), [&usual[2..], option].concat()),
            _ => (usual.to_vec(), [&usual[..], option].concat()),
        };
        for (code, error) in two(folder.path(), &first, &second) {
            assert!(error.contains(words) && code == Some(2), "{option:?}: {code:?} {error}");
        }
        assert!(!folder.path().join("run").exists(), "a run that has not begun leaves no folder");
    }
    let ended = two(folder.path(), &usual, &[&usual[..], &["--keep-checkpoints", "1"]].concat());
    assert!(ended.iter().all(|(code, _)| *code == Some(0)), "{ended:?}");
}

#[test]
fn a_run_goes_on_with_its_data_from_any_folder_and_with_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    noise_images(place, 40);
    let train = ["train", "--data", "mnist:noise", "--model", "mlp", "--batch-size", "4", "--epochs", "2"];
    let train = |out: &'static str, more: &[&str]| {
        succeed(place, &[&train[..], &["--nproc", "1", "--shards", "2", "--out", out], more].concat());
    };
    train("whole", &[]);
    train("cut", &["--checkpoint-steps", "3", "--keep-checkpoints", "9"]);
    // Makes the run look as if it had ended after the first of its checkpoints.
    let checkpoints = fs::read_dir(place.join("cut/checkpoints")).unwrap();
    let mut checkpoints: Vec<_> = checkpoints.map(|entry| entry.unwrap().path()).collect();
    checkpoints.sort();
    assert!(!checkpoints[0].ends_with("step-00000010"), "{checkpoints:?}");
    checkpoints[1..].iter().for_each(|later| fs::remove_dir_all(later).unwrap());
    fs::remove_file(place.join("cut/summary.json")).unwrap();
    let labels = place.join("noise/train-labels-idx1-ubyte");
    let good = fs::read(&labels).unwrap();
    let mut other = good.clone();
    *other.last_mut().unwrap() ^= 1;
    fs::write(&labels, &other).unwrap();
    let (code, error) = fail(place, &["train", "--resume", "cut"]);
    assert!(code == 2 && error.contains("the training data = 40 samples (content "), "{code} {error}");
    fs::write(&labels, good).unwrap();

    let config = place.join("cut/config.toml");
    let text = fs::read_to_string(&config).unwrap();
    for (there, here, words) in [
        ("batch_size = 4\n", "batch_size = 5\n", "batch_size = 4, and this run has 5"),
        ("shards = 2\n", "shards = 4\n", "shards = 2, and this run has 4"),
        ("seed = 0\n", "seed = 1\n", "seed = 0, and this run has 1"),
    ] {
        fs::write(&config, text.replacen(there, here, 1)).unwrap();
        let (code, error) = fail(place, &["train", "--resume", "cut"]);
        assert!(
            code == 2 && error.contains(words) && error.contains("--accept-changed-data"),
            "{code} {error}"
        );
    }
    fs::write(&config, text).unwrap();

    // From another folder than at first, where the name of the data means other data.
    let elsewhere = place.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    noise_images(&elsewhere, 20);
    succeed(&elsewhere, &["train", "--resume", "../cut"]);
    let weights = |run: &str| summary(&place.join(run))["weights_sha256"].clone();
    assert_eq!(weights("cut"), weights("whole"));
}

/// A resumed run must not give the weights of one class, or of one column, the name of another.
#[test]
fn a_run_keeps_the_classes_and_columns_that_it_has_learned() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    let data = |header: &str, classes: [&str; 2]| {
        let rows = (0..8).map(|row| format!("{row},{},{}\n", row % 3, classes[row % 2]));
        fs::write(place.join("own.csv"), format!("{header}\n{}", rows.collect::<String>())).unwrap();
    };
    let begin = ["train", "--data", "csv:own.csv", "--label", "kind", "--model", "mlp", "--batch-size", "2"];
    data("a,b,kind", ["oak", "elm"]);
    succeed(place, &[&begin[..], &["--steps", "2", "--nproc", "1", "--out", "run"]].concat());
    let kept = || fs::read(place.join("run/preprocessing.json")).unwrap();
    let before = kept();
    for (header, classes, words) in [
        ("a,b,kind", ["oak", "fir"], "its classes are fir, oak, and this run has learned elm, oak"),
        ("a,c,kind", ["oak", "elm"], "its columns are a, c, and this run has learned a, b"),
    ] {
        data(header, classes);
        let more = ["train", "--resume", "run", "--steps", "4", "--accept-changed-data"];
        let (code, error) = fail(place, &more);
        assert!(code == 2 && error.contains(words) && error.contains("--init"), "{code} {error}");
        assert!(!error.contains("continues after step"), "{error}");
        assert_eq!(kept(), before);
    }
}

/// Other test rows change no step, so nobody is told that samples would be trained on twice.
#[test]
fn what_has_changed_in_the_data_is_named_with_what_follows() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    let rows = |count: usize, key: usize| {
        let row = |row| format!("{row},{},{}\n", (row + key) % 3, ["oak", "elm"][row % 2]);
        format!("a,b,kind\n{}", (0..count).map(row).collect::<String>())
    };
    fs::create_dir(place.join("table")).unwrap();
    let write = |name: &str, text: String| fs::write(place.join("table").join(name), text).unwrap();
    let data = || {
        write("train.csv", rows(8, 0));
        write("test.csv", rows(6, 0));
    };
    data();
    let begin = ["train", "--data", "csv:table", "--model", "mlp", "--batch-size", "2", "--steps", "2"];
    succeed(place, &[&begin[..], &["--nproc", "1", "--out", "run"]].concat());
    let twice = "it would train on some samples twice and miss others";
    for (name, text, words, follows) in [
        ("train.csv", rows(9, 0), "the training data = 8 samples (content ", twice),
        (
            "train.csv",
            rows(8, 1),
            "the training data = 8 samples (content ",
            "their number is the same, and their content is not",
        ),
        // A byte more, in the last cell.
        (
            "test.csv",
            rows(6, 0).replace("5,2,elm", "5,20,elm"),
            "the test data = 6 samples (content ",
            "no step learns from them",
        ),
        ("test.csv", rows(7, 0), "the test data = 6 samples (content ", "no step learns from them"),
    ] {
        data();
        write(name, text);
        let (code, error) = fail(place, &["train", "--resume", "run", "--steps", "4"]);
        assert!(code == 2 && error.contains(words) && error.contains(follows), "{error}");
        assert!(
            error.contains("--accept-changed-data") && error.contains(twice) == (follows == twice),
            "{error}"
        );
    }
    // The weights are those of the run on the old test rows.
    succeed(place, &["train", "--resume", "run", "--steps", "4", "--accept-changed-data"]);
    succeed(place, &[&begin[..7], &["--steps", "4", "--nproc", "1", "--out", "whole"]].concat());
    let weights = |run: &str| summary(&place.join(run))["weights_sha256"].clone();
    assert_eq!(weights("run"), weights("whole"));
}
