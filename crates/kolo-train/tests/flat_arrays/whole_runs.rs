//! Runs of the whole trainer that each tensor library ends in the same weights.

use std::path::Path;

use kolo_comm::{Group, threads};
use kolo_ddp::table::Choice;
use kolo_train::{Job, LearningRateSchedule, OptimizerChoice, Recipe, RunFolder, Summary};

/// Five epochs of four steps, of which the last is short.
pub fn recipe() -> Recipe {
    let mut recipe = Recipe { epochs: 5, shards: 4, batch_size: 2, ..Recipe::default() };
    (recipe.rate.lr, recipe.rate.warmup_steps) = (0.1, 4);
    recipe
}

/// Plain gradient descent with all 30 samples in each step.
pub fn descent(steps: usize, rate: f64) -> Recipe {
    let sgd = Choice::new("sgd").with("momentum", 0.0).with("weight_decay", 0.0);
    let mut recipe = Recipe { epochs: steps, batch_size: 8, optimizer: OptimizerChoice(sgd), ..recipe() };
    (recipe.rate.lr, recipe.rate.warmup_steps) = (rate, 0);
    recipe.rate.schedule = LearningRateSchedule::Constant;
    recipe
}

pub fn job(recipe: Recipe, folder: &Path, resume: bool) -> Job {
    Job { folder: Some(RunFolder::at(folder.into())), resume, ..Job::new(recipe) }
}

fn expect_lines(folder: &Path) {
    let lines = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap().lines().count();
    assert_eq!((lines("steps.jsonl"), lines("metrics.csv")), (20, 1 + 5));
}

/// Trains on one worker and on several; returns the summary, which rank 0 has.
pub fn on_any_number_of_workers(train: impl Fn(Job, Group) -> Option<Summary> + Sync) -> Summary {
    let run = |world: usize| {
        let folder = tempfile::tempdir().unwrap();
        let summaries = threads::spawn(world, |group| train(job(recipe(), folder.path(), false), group));
        let mut summaries: Vec<Summary> = summaries.unwrap().into_iter().flatten().collect();
        assert_eq!(summaries.len(), 1);
        expect_lines(folder.path());
        summaries.remove(0)
    };
    let whole = run(1);
    for (world, summary) in [2, 3].map(|world| (world, run(world))) {
        assert_eq!(summary.weights_sha256, whole.weights_sha256, "{world} workers");
        assert_eq!(summary.scores, whole.scores, "{world} workers");
    }
    whole
}

/// Ends a run in the middle of an epoch and resumes it.
pub fn resumed(train: impl Fn(Job, Group) -> Option<Summary>) {
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run = |recipe, folder: &Path, resume| train(job(recipe, folder, resume), Group::alone()).unwrap();
    let expected = run(recipe(), whole.path(), false);
    let first = run(Recipe { steps: Some(7), ..recipe() }, parts.path(), false);
    assert!(first.steps == 7 && first.weights_sha256 != expected.weights_sha256);
    let resumed = run(recipe(), parts.path(), true);
    assert_eq!((resumed.steps, resumed.weights_sha256), (20, expected.weights_sha256));
    assert_eq!(resumed.scores, expected.scores);
    expect_lines(parts.path());
}
