//! Metrics, the best checkpoint, and the early end of a run.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::tensor::Device;
use kolo_burn_train::{
    Error, Job, Mean, Membership, Metric, Recipe, RunFolder, Summary, Trainer, accuracy, cross_entropy,
    image_tensors,
};
use kolo_comm::{Group, threads};
use kolo_data::Batch;

use crate::model::{Computed, Perceptron};

fn recipe(folder: &Path) -> Job {
    let config = Recipe { epochs: 6, shards: 4, batch_size: 2, test_batch_size: 3, ..Recipe::default() };
    Job { folder: Some(RunFolder::at(folder.into())), ..Job::new(config) }
}

#[test]
fn scores_are_the_same_digits_on_any_number_of_workers() {
    let run = |group: Group| {
        let trainer =
            Trainer::of(Job::new(recipe(Path::new("")).config), Arc::new(Computed), Perceptron::loss);
        let both = |model: &Perceptron, batch: Batch, device: &Device| {
            let (images, labels) = image_tensors(batch, device);
            let scores = model.scores(images);
            [cross_entropy(scores.clone(), labels.clone()).into(), accuracy(scores, labels)]
        };
        let rows = Rc::new(RefCell::new(Vec::new()));
        let seen = rows.clone();
        let trainer = trainer
            .evaluate([Metric::LOSS, Metric::ACCURACY], both)
            .on_epoch(move |row, _| seen.borrow_mut().push(row.scores.clone()));
        let trained = trainer.train_as(Membership::Fixed(group), Perceptron::new()).unwrap();
        assert!(trained.model.is_some());
        rows.take()
    };
    let alone = run(Group::alone());
    assert_eq!(alone.len(), 6);
    assert!(alone[5].get("loss") < alone[0].get("loss") && alone[5].get("accuracy") > Some(0.8), "{alone:?}");
    for world in [2, 3] {
        let told: Vec<_> =
            threads::spawn(world, |group| run(group).iter().map(|s| s.0.clone()).collect::<Vec<_>>())
                .unwrap();
        assert_eq!(
            told[0],
            alone.iter().map(|scores| scores.0.clone()).collect::<Vec<_>>(),
            "{world} workers"
        );
        // Only rank 0 calls the listener.
        assert!(told[1..].iter().all(Vec::is_empty));
    }
}

/// Trains in `folder`; `script` selects the accuracy after each epoch.
fn scripted(
    folder: &Path,
    steps: Option<u64>,
    resume: bool,
    script: &Arc<AtomicUsize>,
) -> Result<Summary, Error> {
    const ACCURACIES: [usize; 6] = [10, 14, 12, 13, 11, 20];
    let mut job = Job { resume, ..recipe(folder) };
    job.config.steps = steps;
    job.config.test_batch_size = 20;
    job.config.patience = Some(3);
    job.config.best_metric = Some("accuracy".into());
    job.config.keep_checkpoints = 1;
    let script = script.clone();
    let trainer = Trainer::of(job, Arc::new(Computed), Perceptron::loss).evaluate(
        [Metric::LOSS, Metric::ACCURACY],
        move |_, _, _| {
            let right = ACCURACIES[script.fetch_add(1, Ordering::SeqCst)];
            [Mean { sum: 1.0, count: 20.0 }, Mean::share(right, 20)]
        },
    );
    let trained = trainer.train_as(Membership::Fixed(Group::alone()), Perceptron::new())?;
    Ok(trained.summary.unwrap())
}

#[test]
fn the_best_checkpoint_is_kept_and_patience_ends_the_run() {
    let whole = tempfile::tempdir().unwrap();
    let summary = scripted(whole.path(), None, false, &Arc::default()).unwrap();
    // The second epoch was the best one, and three came after it.
    assert_eq!((summary.epochs, summary.steps), (5, 40));
    assert_eq!(summary.scores.get("accuracy"), Some(11.0 / 20.0));
    let checkpoints = |folder: &Path, name: &str| {
        let all = std::fs::read_dir(folder.join(name)).unwrap().map(|entry| entry.unwrap().file_name());
        all.map(|name| name.into_string().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(checkpoints(whole.path(), "best"), ["step-00000016"]);
    assert_eq!(checkpoints(whole.path(), "checkpoints"), ["step-00000040"]);
    // The run is complete, with or without its summary: no epoch comes after the last one.
    for _ in 0..2 {
        let again = scripted(whole.path(), None, true, &Arc::default()).unwrap();
        assert_eq!((again.steps, &again.weights_sha256), (40, &summary.weights_sha256));
        std::fs::remove_file(whole.path().join("summary.json")).unwrap();
    }

    // A run that is cut remembers its evaluations.
    let (cut, script) = (tempfile::tempdir().unwrap(), Arc::default());
    assert_eq!(scripted(cut.path(), Some(24), false, &script).unwrap().steps, 24);
    let resumed = scripted(cut.path(), None, true, &script).unwrap();
    assert_eq!((resumed.steps, resumed.weights_sha256), (40, summary.weights_sha256));
    assert_eq!(checkpoints(cut.path(), "best"), ["step-00000016"]);
}

#[test]
fn a_metric_that_nobody_measures_is_told() {
    let mut job = Job::new(recipe(Path::new("")).config);
    job.config.best_metric = Some("f1".into());
    let trainer = Trainer::of(job, Arc::new(Computed), Perceptron::loss);
    let trainer = trainer.evaluate([Metric::ACCURACY], Perceptron::right);
    let error = trainer.train_as(Membership::Fixed(Group::alone()), Perceptron::new()).unwrap_err();
    assert!(
        error.is_input() && error.to_string() == "unknown --best-metric `f1`; known are accuracy",
        "{error}"
    );
}

/// Trains six epochs; `values` are the accuracies after them.
fn measured(folder: &Path, values: [f64; 6]) -> Summary {
    let mut job = recipe(folder);
    job.config.test_batch_size = 20;
    job.config.patience = Some(2);
    job.config.best_metric = Some("accuracy".into());
    let script = AtomicUsize::new(0);
    let trainer = Trainer::of(job, Arc::new(Computed), Perceptron::loss)
        .evaluate([Metric::ACCURACY], move |_, _, _| {
            [Mean { sum: values[script.fetch_add(1, Ordering::SeqCst)], count: 1.0 }]
        });
    trainer.train_as(Membership::Fixed(Group::alone()), Perceptron::new()).unwrap().summary.unwrap()
}

#[test]
fn a_metric_that_is_no_number_is_told_and_never_the_best() {
    const NAN: f64 = f64::NAN;
    let place = tempfile::tempdir().unwrap();
    let summary = measured(place.path(), [NAN; 6]);
    // Two epochs after the first one nothing is better.
    assert_eq!(summary.epochs, 3);
    assert_eq!(summary.warnings, ["accuracy is not a number (NaN) after epoch 1"]);
    assert!(!place.path().join("best").exists());
    let place = tempfile::tempdir().unwrap();
    let summary = measured(place.path(), [NAN, 0.5, NAN, 0.6, NAN, NAN]);
    assert_eq!((summary.epochs, summary.warnings.len()), (6, 1));
    assert!(place.path().join("best/step-00000032").exists());
}

#[test]
fn names_that_cannot_be_are_refused_before_there_is_a_folder() {
    let place = tempfile::tempdir().unwrap();
    let refused = |metrics: [Metric; 2], unit: &str| {
        let two = |_: &Perceptron, _, _: &_| [Mean::share(1, 1); 2];
        let trainer = Trainer::new(recipe(place.path()).config, Arc::new(Computed), Perceptron::loss);
        let trainer = trainer.evaluate(metrics, two).counting(unit).run_folder(place.path().join("run"));
        let error = trainer.train_as(Membership::Fixed(Group::alone()), Perceptron::new()).unwrap_err();
        assert!(error.is_input() && !place.path().join("run").exists(), "{error}");
        error.to_string()
    };
    let error = refused([Metric::LOSS, Metric::higher_is_better("")], "images");
    assert!(error.contains("a name may not be empty"), "{error}");
    let error = refused(["top,5", "top\n5"].map(Metric::higher_is_better), "images");
    assert!(error.contains("\"top,5\" has the same name in Prometheus"), "{error}");
    let error = refused([Metric::LOSS, Metric::LOSS], "images");
    assert!(error.contains("another metric has that name"), "{error}");
    let error = refused([Metric::LOSS, Metric::ACCURACY], "step");
    assert!(error.contains("steps.jsonl has a field of that name"), "{error}");
}
