//! Metrics that merge, of the program's own and of the library.

use std::sync::Arc;

use kolo_comm::{Group, threads};
use kolo_train::{Better, Confusion, Job, Membership, Metric, Scores, Tally, Trainer};
use serde::{Deserialize, Serialize};

use crate::model::{FlatArrays, Perceptron, Plane, Rows};
use crate::{recipe, test_rows};

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
    let mut metrics = vec![Metric::named(format!("worst of {}", 7), Better::Lower)];
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
    assert_eq!(whole.get("worst of 7"), Some(expected[0]));
    for world in [2, 3] {
        let found = threads::spawn(world, scores).unwrap();
        assert_eq!(found[0].0.as_ref(), Some(&whole), "{world} workers");
    }
}

#[test]
fn a_tally_with_too_few_values_is_named() {
    let trainer = trainer().tally(Confusion::METRICS, |_, _, _| Worst(0.0));
    let membership = Membership::Fixed(Group::alone());
    let error = trainer.train_as(membership, Perceptron::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the tally of the evaluation has 1 values for 4 metrics; return one for each"
    );
}
