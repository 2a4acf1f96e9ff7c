//! Metrics that merge, of the program's own and of the library.

use std::path::Path;
use std::sync::Arc;

use kolo_comm::{Group, threads};
use kolo_train::{
    Better, Classification, Confusion, Job, Membership, Metric, Recipe, Scores, Tally, Trainer,
};
use serde::{Deserialize, Serialize};

use crate::model::{FlatArrays, Perceptron, Plane, Rows};
use crate::{job, recipe, summary, test_rows};

/// The largest loss of a sample.
#[derive(Serialize, Deserialize)]
struct Worst(f64);

impl Tally for Worst {
    fn merge(&mut self, later: Self) {
        self.0 = self.0.max(later.0);
    }

    fn finish(&self) -> Vec<f64> {
        vec![self.0]
    }
}

fn losses(model: &Perceptron, (inputs, targets): &Rows) -> Vec<f64> {
    let rows = inputs.chunks(2).zip(targets).map(|(input, target)| (input.to_vec(), vec![*target]));
    rows.map(|row| kolo_train::Mean::from(model.forward(&row)).sum).collect()
}

fn of(model: &Perceptron, rows: &Rows) -> (Worst, Confusion) {
    let losses = losses(model, rows);
    let labels = rows.1.iter().map(|target| u32::from(*target > 0.0));
    let guesses = losses.iter().map(|loss| u32::from(*loss > 0.1));
    (Worst(losses.iter().copied().fold(0.0, f64::max)), Confusion::of(labels, guesses))
}

fn trainer() -> Trainer<FlatArrays, Perceptron, Plane> {
    let mut job = Job::new(recipe());
    job.config.test_batch_size = 2;
    Trainer::of(job, Arc::new(Plane), |model: &Perceptron, rows: Rows, _| model.forward(&rows))
}

fn scores(group: Group) -> (Option<Scores>, Perceptron) {
    let mut metrics = vec![Metric::named(format!("worst, of {}\n\"samples\"", 7), Better::Lower)];
    metrics.extend(Confusion::METRICS);
    let trainer = trainer().tally(metrics, |model, rows, _| of(model, &rows));
    let trained = trainer.train_as(Membership::Fixed(group), Perceptron::new()).unwrap();
    (trained.summary.map(|summary| summary.scores), trained.model.unwrap())
}

#[test]
fn tallies_of_batches_are_those_of_all_samples_on_any_workers() {
    let (whole, model) = scores(Group::alone());
    let whole = whole.unwrap();
    let expected = of(&model, &test_rows()).finish();
    assert_eq!(whole.0.iter().map(|score| score.value).collect::<Vec<_>>(), expected);
    assert_eq!(whole.get("worst, of 7\n\"samples\""), Some(expected[0]));
    for world in [2, 3] {
        let found = threads::spawn(world, scores).unwrap();
        assert_eq!(found[0].0.as_ref(), Some(&whole), "{world} workers");
    }
}

/// The first resumed run lacks but its summary, and so has not seen the last evaluation.
#[test]
fn classes_are_in_the_summary_on_any_workers_and_after_the_end() {
    let classes = |folder: &Path, resume: bool, group: Group| {
        let mut job = job(recipe(), folder, resume);
        job.config.test_batch_size = 3;
        let trainer =
            Trainer::<FlatArrays, _, _>::of(job, Arc::new(Plane), |model: &Perceptron, rows: Rows, _| {
                model.forward(&rows)
            });
        let trainer = trainer.tally(Classification::METRICS, |model, rows, _| {
            let scores: Vec<f32> = losses(model, &rows).iter().flat_map(|loss| [0.1, *loss as f32]).collect();
            let labels: Vec<u32> = rows.1.iter().map(|target| u32::from(*target > 0.0)).collect();
            Classification::of(&scores, &labels)
        });
        let trained = trainer.train_as(Membership::Fixed(group), Perceptron::new()).unwrap();
        (trained.summary.and_then(|summary| summary.classification), trained.model.unwrap())
    };
    let folder = tempfile::tempdir().unwrap();
    let (found, model) = classes(folder.path(), false, Group::alone());
    let found = found.unwrap();
    let confusion = of(&model, &test_rows()).1;
    for (label, class) in found.classes.iter().enumerate() {
        assert_eq!(class.predicted, confusion.row(label as u32), "{found:?}");
        assert_eq!(class.samples, class.predicted.values().sum::<u64>());
        assert_eq!([class.precision, class.recall, class.f1], confusion.by_class()[&(label as u32)]);
    }
    assert_eq!(
        (found.part.as_str(), found.classes.iter().map(|class| class.samples).sum::<u64>()),
        ("test", 7)
    );
    let wrong = 7 - (confusion.count(0, 0) + confusion.count(1, 1));
    assert!(found.most_wrong.len() as u64 == wrong && wrong > 0, "{found:?}");
    let written = serde_json::from_value(summary(folder.path())["classification"].clone()).unwrap();
    assert_eq!(Some(&found), Some(&written));
    std::fs::remove_file(folder.path().join("summary.json")).unwrap();
    assert_eq!(classes(folder.path(), true, Group::alone()).0.as_ref(), Some(&found));
    for world in [2, 3] {
        let folder = tempfile::tempdir().unwrap();
        let all = threads::spawn(world, |group| classes(folder.path(), false, group).0).unwrap();
        assert_eq!(all[0].as_ref(), Some(&found), "{world} workers");
    }
}

#[test]
fn any_text_is_a_name_in_every_file() {
    let (folder, name) = (tempfile::tempdir().unwrap(), "5,\"worst\"\n9,loss");
    std::fs::write(folder.path().join("config.toml"), "").unwrap();
    let train = |steps: Option<u64>, resume: bool| {
        let job = job(Recipe { steps, ..recipe() }, folder.path(), resume);
        let trainer =
            Trainer::<FlatArrays, _, _>::of(job, Arc::new(Plane), |model: &Perceptron, rows: Rows, _| {
                model.forward(&rows)
            });
        let metrics = [Metric::lower_is_better(name)];
        let trainer = trainer.tally(metrics, |model, rows, _| of(model, &rows).0).counting("rows,\n\"x\"");
        trainer.train_as(Membership::Fixed(Group::alone()), Perceptron::new()).unwrap().summary.unwrap()
    };
    train(Some(10), false);
    let summary = train(None, true);
    let run = kolo_run_folder::Run::read(folder.path()).unwrap();
    assert_eq!((run.unit.as_str(), &run.remarks[..]), ("rows,\n\"x\"", &[][..]));
    let epochs: Vec<_> = run.epochs.column("epoch").unwrap().collect();
    assert_eq!(epochs, [1.0, 2.0, 3.0, 4.0, 5.0].map(Some));
    let last = run.epochs.column(&format!("test_{name}")).unwrap().last().flatten();
    assert_eq!((last, summary.scores.get(name)), (summary.scores.get(name), Some(summary.scores.0[0].value)));
    assert_eq!(run.summary.unwrap().scores().collect::<Vec<_>>(), [(name, last.unwrap())]);
}

#[test]
fn a_tally_with_too_few_values_is_named() {
    let trainer = trainer().tally(Confusion::METRICS, |_, _, _| Worst(0.0));
    let membership = Membership::Fixed(Group::alone());
    let error = trainer.train_as(membership, Perceptron::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the tally of the evaluation has 1 value for 4 metrics; return one for each"
    );
}
