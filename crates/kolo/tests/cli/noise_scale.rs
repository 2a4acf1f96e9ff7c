//! `--noise-scale`: the same figures with any division of the work, and in a resumed run.

use std::fs;
use std::path::Path;

use super::program::{noise_images, steps, succeed, summary};

const FIGURES: [&str; 3] = ["noise_scale", "gradient_squared", "noise_trace"];

fn figures(run: &Path) -> Vec<[serde_json::Value; 3]> {
    steps(run).iter().map(|step| FIGURES.map(|name| step[name].clone())).collect()
}

/// The second of three steps has a shard without samples.
#[test]
fn the_noise_scale_is_the_same_for_any_number_of_workers_and_after_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 19);
    let args =
        ["train", "--data", &data, "--shards", "4", "--batch-size", "4", "--steps", "3", "--noise-scale"];
    let run = |name: &str, more: &[&str]| {
        let told = succeed(folder.path(), &[&args[..], &["--out", name], more].concat());
        assert!(told.lines().any(|line| line.starts_with("noise scale     ")), "{told}");
        (folder.path().join(name), summary(&folder.path().join(name))["noise_scale"].clone())
    };
    let (one, last) = run("one", &["--nproc", "1", "--checkpoint-steps", "1"]);
    let expected = figures(&one);
    assert!(expected.len() == 3 && expected.iter().flatten().skip(1).step_by(3).all(|value| value.is_f64()));
    assert_eq!(last["batch"], 16);
    let rows = fs::read_to_string(one.join("metrics.csv")).unwrap();
    let columns: Vec<usize> = rows.lines().map(|row| row.split(',').count()).collect();
    assert!(
        rows.lines().next().unwrap().ends_with(",noise_scale") && columns.iter().all(|n| *n == columns[0])
    );

    let (three, other) = run("three", &["--nproc", "3", "--transport", "tcp", "--bucket-cap-mb", "0.1"]);
    assert_eq!((figures(&three), other), (expected.clone(), last.clone()));

    // Makes the run look as if it had been killed in its third step.
    fs::remove_file(one.join("summary.json")).unwrap();
    fs::remove_dir_all(one.join("checkpoints/step-00000003")).unwrap();
    succeed(folder.path(), &["train", "--resume", "one", "--nproc", "2"]);
    assert_eq!((figures(&one), summary(&one)["noise_scale"].clone()), (expected, last));
}
