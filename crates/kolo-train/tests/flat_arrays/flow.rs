//! Callbacks that decide on the run.

use kolo_comm::{Group, threads};
use kolo_train::{Flow, Membership, Recipe, RunFolder, StepRow, Summary, Trainer};

use crate::model::{FlatArrays, Perceptron, Plane};
use crate::{job, lines, recipe, run, trainer};

fn alone(trainer: Trainer<FlatArrays, Perceptron, Plane>) -> Summary {
    trainer.train_as(Membership::Fixed(Group::alone()), Perceptron::new()).unwrap().summary.unwrap()
}

fn stops(row: &StepRow, _: &Perceptron) -> Flow {
    if row.step == 6 { Flow::Stop } else { Flow::Continue }
}

#[test]
fn a_callback_ends_the_run_after_the_same_step_on_any_workers() {
    let whole = tempfile::tempdir().unwrap();
    let expected = run(Recipe { steps: Some(7), ..recipe() }, whole.path(), false);
    assert_eq!(expected.stopped_by, None);
    for world in [1, 2, 3] {
        let folder = tempfile::tempdir().unwrap();
        let trained = threads::spawn(world, |group| {
            let trainer = trainer(job(recipe(), folder.path(), false), |_| false).on_step(stops);
            trainer.train_as(Membership::Fixed(group), Perceptron::new()).unwrap().summary
        });
        let summary = trained.unwrap().into_iter().flatten().next().unwrap();
        assert_eq!((summary.steps, summary.stopped_by), (7, Some("callback")), "{world} workers");
        assert_eq!((&summary.weights_sha256, &summary.scores), (&expected.weights_sha256, &expected.scores));
        assert_eq!((lines(folder.path(), "steps.jsonl"), lines(folder.path(), "metrics.csv")), (7, 1 + 2));
        // The run is over, also for a program whose callbacks would go on.
        let resumed = alone(trainer(job(recipe(), folder.path(), true), |_| false));
        assert_eq!((resumed.steps, resumed.weights_sha256), (7, summary.weights_sha256));
    }
}

#[test]
fn a_callback_of_epochs_sees_the_model_and_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let first = Perceptron::new().0.concat();
    let trainer = trainer(job(recipe(), folder.path(), false), |_| false);
    let summary = alone(trainer.on_epoch(move |row, model: &Perceptron| {
        assert_ne!(model.0.concat(), first);
        if row.epoch == 2 { Flow::Stop } else { Flow::Continue }
    }));
    assert_eq!((summary.steps, summary.epochs), (8, 2));
    let expected = run(Recipe { epochs: 2, ..recipe() }, tempfile::tempdir().unwrap().path(), false);
    assert_ne!(summary.weights_sha256, expected.weights_sha256, "the schedule is that of five epochs");
}

#[test]
fn a_callback_asks_for_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let all = Recipe { keep_checkpoints: 9, checkpoint_epochs: 5, ..recipe() };
    let trainer = trainer(job(all, folder.path(), false), |_| false);
    let trainer = trainer.on_step(|row, _| if row.step == 4 { Flow::Checkpoint } else { Flow::Continue });
    alone(trainer.on_epoch(|row, _| if row.epoch == 3 { Flow::Checkpoint } else { Flow::Continue }));
    let checkpoints = RunFolder::at(folder.path().into());
    let kept: Vec<u64> = (0..=20).filter(|step| checkpoints.has_checkpoint(*step)).collect();
    assert_eq!(kept, [5, 12, 20]);
}

#[test]
fn a_callback_of_steps_decides_only_where_workers_have_one_model() {
    let mut recipe = recipe();
    recipe.sync.mode = "local:H=4".parse().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let trainer = trainer(job(recipe, folder.path(), false), |_| false).on_step(stops);
    let error = trainer.train_as(Membership::Fixed(Group::alone()), Perceptron::new()).unwrap_err();
    assert!(error.is_input(), "{error}");
    assert!(error.to_string().contains("return a `Flow` from `on_epoch`"), "{error}");
}
