//! The program's own optimizer, reduction, schedule and transform in the trainer.

use kolo_comm::{Group, threads};
use kolo_ddp::optimizer::{Optimizer, Update};
use kolo_ddp::reduction::{self, Context, Reducer, Reduction};
use kolo_ddp::table::Choice;
use kolo_ddp::transform::{Decision, GradientTransform};
use kolo_ddp::{Layout, Slice};
use kolo_train::{
    Error, Job, Membership, OptimizerChoice, Recipe, RunFolder, SchedulePoint, Trained, Trainer,
};

use crate::model::{FlatArrays, Perceptron, Plane};
use crate::{assert_close, descended, job, trainer};

/// Gradient descent.
#[derive(Default)]
struct Descent {
    learning_rate: f32,
}

impl Optimizer for Descent {
    fn init(&mut self, _: &Layout) {}

    fn begin(&mut self, _step: u64, learning_rate: f64) {
        self.learning_rate = learning_rate as f32;
    }

    fn update(&mut self, Update { parameters, gradient, scale, .. }: Update<'_>) {
        let values = parameters.iter_mut().zip(gradient);
        values.for_each(|(value, gradient)| *value -= self.learning_rate * gradient * scale);
    }

    fn state(&mut self) -> Vec<(&'static str, &mut [f32])> {
        Vec::new()
    }
}

/// The sum of the table, under another name.
struct OwnSum;

impl Reducer for OwnSum {
    fn name(&self) -> &str {
        "own-sum"
    }

    fn build(&self, context: &Context<'_>) -> Result<Box<dyn Reduction>, kolo_ddp::Error> {
        reduction::parse("sum").unwrap().build(context)
    }
}

/// Halves the gradient in the first step, and quarters it in all later ones.
#[derive(Default)]
struct Halving {
    steps: f64,
}

impl GradientTransform for Halving {
    fn name(&self) -> &str {
        "halving"
    }

    fn init(&mut self, _: &Layout) {
        self.steps = 0.0;
    }

    fn see(&mut self, _: &Slice, _: &[f32]) {}

    fn decide(&mut self, _scale: f64) -> Decision {
        self.steps += 1.0;
        Decision { factor: if self.steps == 1.0 { 0.5 } else { 0.25 }, norm: None }
    }

    fn state(&self) -> Vec<f64> {
        vec![self.steps]
    }

    fn restore(&mut self, state: &[f64]) -> Result<(), String> {
        self.steps = state.first().copied().unwrap_or(0.0);
        Ok(())
    }
}

fn rate(point: SchedulePoint) -> f64 {
    0.5 * (1.0 - point.progress)
}

/// Five epochs of four steps, of which the last is short.
fn recipe() -> Recipe {
    Recipe { epochs: 5, shards: 4, batch_size: 2, ..Recipe::default() }
}

fn with_own(job: Job) -> Trainer<FlatArrays, Perceptron, Plane> {
    let trainer = trainer(job, |_| false).optimizer(Descent::default()).reduction(OwnSum);
    trainer.transform(Halving::default()).schedule(rate)
}

fn alone(trainer: Trainer<FlatArrays, Perceptron, Plane>) -> Result<Trained<Perceptron>, Error> {
    trainer.train_as(Membership::Fixed(Group::alone()), Perceptron::new())
}

#[test]
fn own_parts_end_in_the_weights_of_plain_lines() {
    const STEPS: usize = 30;
    // All 30 samples in each step, on three workers.
    let recipe = Recipe { epochs: STEPS, batch_size: 8, ..recipe() };
    let trained = threads::spawn(3, |group| {
        let trainer = with_own(Job::new(recipe.clone()));
        trainer.train_as(Membership::Fixed(group), Perceptron::new()).unwrap().model.unwrap()
    });
    let rate = |step: usize| 0.5 * (1.0 - step as f64 / STEPS as f64);
    let expected = descended(STEPS, |step| rate(step) * if step == 0 { 0.5 } else { 0.25 });
    assert_close(&trained.unwrap(), &expected);
}

#[test]
fn own_parts_give_the_same_bits_on_any_workers_and_after_a_resume() {
    let whole = alone(with_own(Job::new(recipe()))).unwrap().summary.unwrap().weights_sha256;
    for world in [2, 3] {
        let trained = threads::spawn(world, |group| {
            let trainer = with_own(Job::new(recipe()));
            trainer.train_as(Membership::Fixed(group), Perceptron::new()).unwrap().summary
        });
        let summaries: Vec<_> = trained.unwrap().into_iter().flatten().collect();
        assert_eq!((summaries.len(), &summaries[0].weights_sha256), (1, &whole), "{world} workers");
    }
    let folder = tempfile::tempdir().unwrap();
    let part = alone(with_own(job(Recipe { steps: Some(7), ..recipe() }, folder.path(), false)));
    assert_eq!(part.unwrap().summary.unwrap().steps, 7);
    let resumed = alone(with_own(job(recipe(), folder.path(), true))).unwrap().summary.unwrap();
    assert_eq!((resumed.steps, resumed.weights_sha256), (20, whole));
}

#[test]
fn a_run_is_continued_with_its_own_parts_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let run = |trainer: Trainer<FlatArrays, Perceptron, Plane>| alone(trainer.run_folder(&path));
    let part = || Job::new(Recipe { steps: Some(7), ..recipe() });
    run(with_own(part())).unwrap();
    let text = std::fs::read_to_string(path.join("config.toml")).unwrap();
    for line in [
        "[own]",
        "optimizer = \"flat_arrays::own_parts::Descent\"",
        "reduction = \"own-sum\"",
        "schedule = \"0.5, 0.25, 0.025000000000000022\"",
        "transforms = [\"halving\"]",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    // The program without its parts, and with another schedule.
    let error = run(trainer(part(), |_| false)).unwrap_err().to_string();
    assert!(error.contains("began with own.optimizer = "), "{error}");
    let error = run(with_own(part()).schedule(|_| 0.5)).unwrap_err().to_string();
    assert!(
        error.contains("own.schedule = \"0.5, 0.25, 0.025000000000000022\", not \"0.5, 0.5, 0.5\""),
        "{error}"
    );
    // As the command line does, which brings no parts.
    let begun = RunFolder::at(path.clone()).config().unwrap();
    assert_eq!(begun.own.transforms, ["halving"]);
    let error = alone(trainer(job(begun, &path, true), |_| false)).unwrap_err();
    assert!(error.is_input() && error.to_string().ends_with("continue it with that program"), "{error}");
}

#[test]
fn own_parts_are_refused_beside_those_of_the_recipe() {
    let refused = |recipe: Recipe| alone(with_own(Job::new(recipe))).unwrap_err().to_string();
    let optimizer = OptimizerChoice(Choice::new("adamw"));
    let error = refused(Recipe { optimizer, ..recipe() });
    assert!(error.contains("--optimizer adamw") && error.contains("an optimizer of its own"), "{error}");
    let error = refused(Recipe { reduction: "bf16".into(), ..recipe() });
    assert!(error.contains("--reduction bf16: the program brings a reduction of its own"), "{error}");
    let mut rated = recipe();
    rated.rate.lr = 0.2;
    assert!(refused(rated).contains("a schedule of the learning rate of its own"));
    let error = alone(with_own(Job::new(recipe())).schedule(|_| -1.0)).unwrap_err().to_string();
    assert!(error.contains("gives step 0 (from 0) the learning rate -1"), "{error}");
}
