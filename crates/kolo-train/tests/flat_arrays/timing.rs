//! Evaluations within epochs, and the time limit of a run.

use std::path::Path;

use kolo_comm::{Group, threads};
use kolo_train::{Error, Job, Membership, Recipe};

use crate::{job, recipe, run, train};

/// Epochs and losses of the rows of `metrics.csv`.
fn evaluations(folder: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(folder.join("metrics.csv")).unwrap();
    let column = text.lines().next().unwrap().split(',').position(|name| name == "test_loss").unwrap();
    let cells = |line: &str| line.split(',').map(String::from).collect::<Vec<_>>();
    text.lines().skip(1).map(cells).map(|cells| (cells[0].clone(), cells[column].clone())).collect()
}

#[test]
fn the_model_is_also_evaluated_within_epochs() {
    let plain = tempfile::tempdir().unwrap();
    let expected = run(recipe(), plain.path(), false).weights_sha256;
    let often = || Recipe { eval_steps: Some(3), ..recipe() };
    let whole = tempfile::tempdir().unwrap();
    assert_eq!(run(often(), whole.path(), false).weights_sha256, expected);
    let rows = evaluations(whole.path());
    let epochs: Vec<&str> = rows.iter().map(|row| row.0.as_str()).collect();
    assert_eq!(epochs, ["0.75", "1", "1.5", "2", "2.25", "3", "3.75", "4", "4.5", "5"]);
    let of_epochs: Vec<_> = rows.iter().filter(|row| !row.0.contains('.')).cloned().collect();
    assert_eq!(of_epochs, evaluations(plain.path()));
    // Two workers, cut after an evaluation within an epoch, one at its end, and a step without any.
    let parts = tempfile::tempdir().unwrap();
    for (steps, resume) in [(Some(6), false), (Some(8), true), (Some(11), true), (None, true)] {
        let trained = threads::spawn(2, |group| {
            let job = job(Recipe { steps, ..often() }, parts.path(), resume);
            train(job, Membership::Fixed(group), |_| false).unwrap().summary
        });
        assert!(trained.unwrap()[0].is_some());
    }
    assert_eq!(evaluations(parts.path()), rows);
}

#[test]
fn patience_counts_evaluations() {
    let folder = tempfile::tempdir().unwrap();
    let mut recipe = Recipe { eval_steps: Some(1), patience: Some(2), ..recipe() };
    // Nothing gets better without a rate.
    (recipe.rate.lr, recipe.rate.warmup_steps) = (1e-30, 0);
    assert_eq!(run(recipe, folder.path(), false).steps, 3);
}

#[test]
fn a_run_whose_time_is_over_saves_and_goes_on_in_the_same_bits() {
    let expected = run(recipe(), tempfile::tempdir().unwrap().path(), false).weights_sha256;
    let folder = tempfile::tempdir().unwrap();
    for part in 1..=10 {
        let ended = threads::spawn(2, |group| {
            let mut job: Job = job(recipe(), folder.path(), part > 1);
            job.config.max_hours = Some(1e-9);
            train(job, Membership::Fixed(group), |_| false).map(|trained| trained.summary)
        });
        for (rank, ended) in ended.unwrap().into_iter().enumerate() {
            match ended {
                Err(Error::EndedEarly { too_few: None, max_hours: Some(_), step, total: 20, .. }) => {
                    assert_eq!(step, 2 * part);
                }
                Ok(summary) if part == 10 => {
                    let weights = summary.map(|summary| summary.weights_sha256);
                    assert_eq!(weights, (rank == 0).then(|| expected.clone()));
                }
                other => panic!("part {part}, rank {rank}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_time_limit_of_nothing_is_refused() {
    let job = Job::new(Recipe { max_hours: Some(0.0), ..recipe() });
    let error = train(job, Membership::Fixed(Group::alone()), |_| false).unwrap_err();
    assert_eq!(error.to_string(), "--max-hours 0: it must be greater than 0");
}
