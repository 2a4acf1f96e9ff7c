//! A second tensor library, of flat arrays, goes through the whole trainer: metrics, run folder, checkpoints,
//! resume, and recovery after a worker was killed.

mod ema;
mod flow;
mod mixing;
mod model;
mod own_parts;
mod tallies;
mod timing;
mod whole_runs;

use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use kolo_comm::{Group, Options, threads};
use kolo_data::{DataSet, Part};
use kolo_elastic::{Coordinator, Member, MemberExit, MembershipPolicy};
use kolo_train::{
    EpochRow, Error, Flow, Job, Membership, Metric, Pass, Recipe, StepRow, Summary, Trained, Trainer,
};

use model::{FlatArrays, HIDDEN, INPUTS, Perceptron, Plane, Rows};
use whole_runs::{job, recipe};

const COORDINATOR: &str = "FLAT_ARRAYS_COORDINATOR";
const MEMBER: &str = "FLAT_ARRAYS_MEMBER";
const DIES: &str = "FLAT_ARRAYS_DIES";
/// Beginning of that variable if the worker dies in its listener.
const LISTENER: &str = "listener of ";
/// Beginning of that variable if the worker dies in a listener that ends the run for all.
const STOP: &str = "stop by ";
const FOLDER: &str = "FLAT_ARRAYS_FOLDER";

/// The same with an average of the weights.
fn averaging() -> Recipe {
    Recipe { ema: Some(0.9), ..recipe() }
}

fn trainer(
    job: Job,
    dies: impl Fn(&Pass<'_>) -> bool + Send + Sync + 'static,
) -> Trainer<FlatArrays, Perceptron, Plane> {
    let loss = move |model: &Perceptron, rows: Rows, pass: &Pass<'_>| {
        if dies(pass) {
            std::process::abort();
        }
        model.forward(&rows)
    };
    let trainer = Trainer::<FlatArrays, _, _>::of(job, Arc::new(Plane), loss).counting("rows");
    trainer.evaluate([Metric::LOSS], |model, rows, _| [model.forward(&rows).into()])
}

fn train(
    job: Job,
    membership: Membership,
    dies: impl Fn(&Pass<'_>) -> bool + Send + Sync + 'static,
) -> Result<Trained<Perceptron>, Error> {
    trainer(job, dies).train_as(membership, Perceptron::new())
}

fn run(recipe: Recipe, folder: &Path, resume: bool) -> Summary {
    let membership = Membership::Fixed(Group::alone());
    train(job(recipe, folder, resume), membership, |_| false).unwrap().summary.unwrap()
}

fn summary(folder: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(folder.join("summary.json")).unwrap()).unwrap()
}

fn lines(folder: &Path, file: &str) -> usize {
    std::fs::read_to_string(folder.join(file)).unwrap().lines().count()
}

#[test]
fn any_number_of_workers_ends_in_the_same_weights() {
    let whole = whole_runs::on_any_number_of_workers(|job, group| {
        train(job, Membership::Fixed(group), |_| false).unwrap().summary
    });
    assert_eq!((whole.steps, whole.parameters), (20, HIDDEN * (INPUTS + 1) + HIDDEN + 1));
    let (first, last) = (Perceptron::new().forward(&test_rows()), whole.scores.get("loss").unwrap());
    assert!(last < 0.5 * kolo_train::Mean::from(first).sum / 7.0, "{whole:?}");
}

fn test_rows() -> Rows {
    Plane.batch(Part::Test, &(0..7).collect::<Vec<_>>(), None).unwrap()
}

#[test]
fn a_resumed_run_ends_in_the_weights_of_a_whole_one() {
    whole_runs::resumed(|job, group| train(job, Membership::Fixed(group), |_| false).unwrap().summary);
}

/// A worker of the next test, in a process of its own; nothing without its environment.
#[test]
fn worker() {
    let Ok(address) = std::env::var(COORDINATOR) else { return };
    let variable = |name| std::env::var(name).unwrap();
    let (member, dies) = (variable(MEMBER), variable(DIES));
    let address: SocketAddr = address.parse().unwrap();
    let membership = Membership::Elastic(Member::connect(address, &member, &Options::default()).unwrap());
    let folder = variable(FOLDER);
    let (is_victim, in_listener, in_stop) =
        (dies.ends_with(&member), dies.starts_with(LISTENER), dies.starts_with(STOP));
    let in_pass = !in_listener && !in_stop;
    let dies_in_pass = move |pass: &Pass<'_>| is_victim && in_pass && (pass.epoch, pass.step) == (2, 1);
    let calls = Path::new(&folder).with_extension("calls");
    let listener = move |row: &EpochRow, _: &Perceptron| {
        if is_victim && in_listener && row.epoch == 3 {
            std::process::abort();
        }
        let mut calls = File::options().append(true).create(true).open(&calls).unwrap();
        writeln!(calls, "{}", row.epoch).unwrap();
    };
    let stops = move |row: &StepRow, _: &Perceptron| match in_stop && row.step == 6 {
        true if is_victim => std::process::abort(),
        true => Flow::Stop,
        false => Flow::Continue,
    };
    let trainer = trainer(job(averaging(), Path::new(&folder), false), dies_in_pass);
    let trainer = trainer.on_epoch(listener).on_step(stops);
    trainer.train_as(membership, Perceptron::new()).unwrap();
}

#[test]
fn a_run_outlives_a_killed_worker_in_the_same_weights() {
    let whole = tempfile::tempdir().unwrap();
    let expected = run(averaging(), whole.path(), false);
    let seventh = run(Recipe { steps: Some(7), ..averaging() }, tempfile::tempdir().unwrap().path(), false);
    let names = ["here/0", "here/1", "here/2"];
    let limit = Duration::from_secs(60);
    let policy = MembershipPolicy {
        min_members: 1,
        start_timeout: limit,
        rejoin_timeout: limit,
        too_few_timeout: limit,
    };
    for dies in ["here/0", "here/1", "listener of here/0", "stop by here/0"] {
        let (epochs, expected) = if dies.starts_with(STOP) { (2, &seventh) } else { (5, &expected) };
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("run");
        std::fs::create_dir(&folder).unwrap();
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        let (coordinator, _events) =
            Coordinator::single_node(address, names.len(), policy, &Options::default()).unwrap();
        names.iter().for_each(|name| coordinator.member_started(name));
        let work = |name: &'static str| {
            let mut worker = Command::new(std::env::current_exe().unwrap());
            worker.args(["worker", "--exact", "--nocapture"]).env(DIES, dies).env(FOLDER, &folder);
            worker.env(COORDINATOR, coordinator.address().to_string()).env(MEMBER, name);
            let succeeded = worker.status().unwrap().success();
            let exit = if succeeded { MemberExit::Clean } else { MemberExit::Failed("was killed".into()) };
            coordinator.member_exited(name, &exit);
            assert_eq!(succeeded, !dies.ends_with(name), "{name}");
        };
        std::thread::scope(|scope| names.iter().for_each(|name| drop(scope.spawn(|| work(name)))));
        let survived = summary(&folder);
        assert_eq!(
            (&survived["steps"], &survived["world_size"]),
            (&expected.steps.into(), &2.into()),
            "{dies} died"
        );
        assert_eq!(survived["weights_sha256"], expected.weights_sha256.as_str(), "{dies} died");
        // Of the averages.
        let (loss, expected) =
            (survived["test_loss"].as_f64().unwrap(), expected.scores.get("loss").unwrap());
        assert!((loss - expected).abs() < 1e-12, "{dies} died: {loss} {expected}");
        let calls = std::fs::read_to_string(folder.with_extension("calls")).unwrap();
        assert!(
            (1..=epochs).all(|epoch| calls.lines().any(|line| line == epoch.to_string())),
            "{dies}: {calls}"
        );
    }
}

/// Gradient descent over all samples in f64 and a few plain lines ends in the trainer's weights, to rounding.
#[test]
fn plain_gradient_descent_ends_in_the_same_weights() {
    const STEPS: usize = 30;
    const RATE: f64 = 0.1;
    let trained = threads::spawn(3, |group| {
        let job = Job::new(whole_runs::descent(STEPS, RATE));
        train(job, Membership::Fixed(group), |_| false).unwrap().model.unwrap()
    });

    assert_close(&trained.unwrap(), &descended(STEPS, |_| RATE));
}

/// Weights after so many steps of gradient descent over all samples.
fn descended(steps: usize, rate: impl Fn(usize) -> f64) -> Vec<f64> {
    let [mut hidden, mut output] =
        Perceptron::new().0.map(|w| w.into_iter().map(f64::from).collect::<Vec<_>>());
    let (inputs, targets) = Plane.batch(Part::Train, &(0..30).collect::<Vec<_>>(), None).unwrap();
    for step in 0..steps {
        let (mut to_hidden, mut to_output) = (vec![0.0; hidden.len()], vec![0.0; output.len()]);
        for (x, target) in inputs.chunks(INPUTS).zip(&targets) {
            let x = [f64::from(x[0]), f64::from(x[1]), 1.0];
            let sum = |j: usize| (0..3).map(|i| hidden[3 * j + i] * x[i]).sum::<f64>();
            let value = output[HIDDEN] + (0..HIDDEN).map(|j| output[j] * sum(j).max(0.0)).sum::<f64>();
            let error = (value - f64::from(*target)) / 30.0;
            to_output[HIDDEN] += error;
            for j in (0..HIDDEN).filter(|j| sum(*j) > 0.0) {
                to_output[j] += error * sum(j);
                (0..3).for_each(|i| to_hidden[3 * j + i] += error * output[j] * x[i]);
            }
        }
        hidden.iter_mut().zip(to_hidden).for_each(|(w, gradient)| *w -= rate(step) * gradient);
        output.iter_mut().zip(to_output).for_each(|(w, gradient)| *w -= rate(step) * gradient);
    }
    [hidden, output].concat()
}

fn assert_close(trained: &[Perceptron], expected: &[f64]) {
    for Perceptron(weights) in trained {
        for (own, expected) in weights.concat().iter().zip(expected) {
            assert!((f64::from(*own) - expected).abs() < 1e-5, "{own} {expected}");
        }
    }
}

#[test]
fn the_library_refuses_a_type_that_it_does_not_compute_in() {
    let mut recipe = recipe();
    recipe.precision.compute = "bf16".into();
    let error = train(Job::new(recipe), Membership::Fixed(Group::alone()), |_| false).unwrap_err();
    assert_eq!(error.to_string(), "flat arrays do not compute in bf16; take f32 (--precision)");
}
