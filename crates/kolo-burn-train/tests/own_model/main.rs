//! A user's own model, data set and sink go through the whole trainer like those of the tables.

mod alike;
mod changed_data;
mod durable;
mod folder;
mod growth;
mod model;
mod not_finite;
mod precision;
mod scores;
mod validation;

use kolo_comm::{Group, threads};

use model::{CLASSES, PIXELS, job, run};

#[test]
fn the_same_weights_on_any_number_of_workers() {
    let folder = tempfile::tempdir().unwrap();
    let whole = run(Group::alone(), job(folder.path(), None, false)).unwrap().unwrap();
    assert_eq!((whole.steps, whole.epochs, whole.parameters), (24, 3, PIXELS * CLASSES));
    assert!(whole.scores.get("accuracy").unwrap() > 0.8 && whole.train_loss < 1.0, "{whole:?}");
    let numbers = std::fs::read_to_string(folder.path().join("numbers.txt")).unwrap();
    assert_eq!(numbers, (0..24).map(|step| format!("{step} ")).collect::<String>());
    for world in [2, 3] {
        let folder = tempfile::tempdir().unwrap();
        let summaries = threads::spawn(world, |group| {
            run(group, job(folder.path(), None, false)).unwrap().map(|summary| summary.weights_sha256)
        });
        // Rank 0 alone has a summary.
        let summaries: Vec<String> = summaries.unwrap().into_iter().flatten().collect();
        assert_eq!(summaries, std::slice::from_ref(&whole.weights_sha256), "{world} workers");
    }
}

#[test]
fn a_run_that_is_resumed_ends_in_the_weights_of_a_whole_one() {
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let expected = run(Group::alone(), job(whole.path(), None, false)).unwrap().unwrap();
    let first = run(Group::alone(), job(parts.path(), Some(11), false)).unwrap().unwrap();
    assert!(first.steps == 11 && first.weights_sha256 != expected.weights_sha256);
    let resumed = run(Group::alone(), job(parts.path(), None, true)).unwrap().unwrap();
    assert_eq!((resumed.steps, &resumed.weights_sha256), (24, &expected.weights_sha256));
    let lines = |name| std::fs::read_to_string(parts.path().join(name)).unwrap().lines().count();
    assert_eq!((lines("steps.jsonl"), lines("metrics.csv")), (24, 1 + 3));
    let written = parts.path().join("summary.json");
    // A complete run: resuming it changes nothing, or writes a summary that a death has prevented.
    let summary = || serde_json::from_slice::<serde_json::Value>(&std::fs::read(&written).unwrap()).unwrap();
    let expected = summary();
    for is_missing in [false, true] {
        if is_missing {
            std::fs::remove_file(&written).unwrap();
        }
        let again = run(Group::alone(), job(parts.path(), None, true)).unwrap().unwrap();
        assert_eq!((again.steps, &again.weights_sha256), (24, &resumed.weights_sha256));
        for field in ["steps", "epochs", "weights_sha256", "train_loss", "test_accuracy"] {
            assert_eq!(summary()[field], expected[field], "{field}");
        }
        assert_eq!((lines("steps.jsonl"), lines("metrics.csv")), (24, 1 + 3));
    }
}

#[test]
fn a_setting_that_cannot_be_is_told_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = job(folder.path(), None, false);
    wrong.config.batch_size = 0;
    let error = run(Group::alone(), wrong).unwrap_err();
    assert!(error.is_input() && error.to_string().contains("--batch-size 0"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
