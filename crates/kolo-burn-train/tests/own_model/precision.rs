//! Every precision has a result of its own.

use std::path::Path;

use kolo_burn_train::{Recipe, Summary};
use kolo_comm::{Group, threads};

use crate::model::{job, run};

/// Every precision has bits of its own, which do not depend on the number of workers or on resuming. The run
/// in `f16` begins with steps that overflow, and one run is resumed in the middle of them.
#[test]
fn each_precision_has_one_result_for_any_number_of_workers() {
    let job_in = |compute: &str, folder: &Path, steps, resume| {
        let mut job = job(folder, steps, resume);
        job.config.precision.compute = compute.into();
        job.config.precision.scale = 2f64.powi(20);
        job
    };
    let mut results = Vec::new();
    for compute in ["f32", "bf16", "f16"] {
        let folder = tempfile::tempdir().unwrap();
        let whole = run(Group::alone(), job_in(compute, folder.path(), None, false)).unwrap().unwrap();
        assert!(whole.scores.get("accuracy").unwrap() > 0.7 && whole.train_loss < 1.0, "{whole:?}");
        let lines = std::fs::read_to_string(folder.path().join("steps.jsonl")).unwrap();
        let skipped = lines.lines().filter(|line| line.contains("\"skipped\":true")).count() as u64;
        let scaled = lines.lines().filter(|line| line.contains("\"loss_scale\":")).count() as u64;
        match compute {
            "f16" => {
                assert!(skipped > 2 && skipped < 12 && scaled == 24, "{lines}");
                assert_eq!(whole.skipped_steps, Some(skipped));
            }
            _ => assert_eq!((skipped, scaled, whole.skipped_steps), (0, 0, None)),
        }
        for world in [2, 3] {
            let folder = tempfile::tempdir().unwrap();
            threads::spawn(world, |group| {
                run(group, job_in(compute, folder.path(), Some(2), false)).unwrap()
            })
            .unwrap();
            let resumed = threads::spawn(world, |group| {
                run(group, job_in(compute, folder.path(), None, true)).unwrap()
            });
            let resumed: Vec<Summary> = resumed.unwrap().into_iter().flatten().collect();
            assert_eq!(resumed[0].weights_sha256, whole.weights_sha256, "{compute}, {world} workers");
            assert_eq!(resumed[0].skipped_steps, whole.skipped_steps, "{compute}, {world} workers");
        }
        results.push(whole.weights_sha256);
    }
    assert!(results[0] != results[1] && results[0] != results[2] && results[1] != results[2]);
}

/// A type or a scale that a run cannot use is refused before it begins.
#[test]
fn a_precision_that_cannot_be_is_refused() {
    let refused = |change: fn(&mut Recipe)| {
        let mut recipe = Recipe::default();
        change(&mut recipe);
        recipe.check().unwrap_err().to_string()
    };
    for (change, words) in [
        ((|recipe| recipe.precision.compute = "f8".into()) as fn(&mut Recipe), "f32, bf16, f16"),
        (
            |recipe| {
                recipe.precision.compute = "f16".into();
                recipe.precision.backoff = 2.0;
            },
            "--loss-scale-backoff 2",
        ),
        (|recipe| recipe.precision.interval = 0, "--loss-scale-interval"),
    ] {
        let error = refused(change);
        assert!(error.contains(words), "{error}");
    }
    let mut recipe = Recipe { reduction: "ef-sign".into(), ..Recipe::default() };
    recipe.precision.compute = "f16".into();
    assert!(recipe.check().is_ok());
}
