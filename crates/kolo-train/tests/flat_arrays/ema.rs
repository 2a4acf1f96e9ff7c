//! The moving average of the weights.

use kolo_comm::{Group, threads};
use kolo_ddp::table::Choice;
use kolo_train::{Job, LearningRateSchedule, Mean, Membership, OptimizerChoice, Recipe, Trained};

use crate::model::Perceptron;
use crate::{assert_close, averaging, descended, job, run, test_rows, train};

fn bits(trained: &Trained<Perceptron>) -> (Vec<u32>, Vec<u32>) {
    let bits = |model: &Option<Perceptron>| {
        model.as_ref().unwrap().0.concat().into_iter().map(f32::to_bits).collect()
    };
    (bits(&trained.model), bits(&trained.averaged))
}

/// Averages in plain lines: ema = d · ema + (1 − d) · w after each step of gradient descent.
#[test]
fn the_averages_are_those_of_plain_lines() {
    const STEPS: usize = 30;
    const RATE: f64 = 0.1;
    let sgd = Choice::new("sgd").with("momentum", 0.0).with("weight_decay", 0.0);
    let optimizer = OptimizerChoice(sgd);
    let mut recipe = Recipe { epochs: STEPS, batch_size: 8, optimizer, ..averaging() };
    (recipe.rate.lr, recipe.rate.warmup_steps) = (RATE, 0);
    recipe.rate.schedule = LearningRateSchedule::Constant;
    for warms_up in [false, true] {
        recipe.ema_warmup = warms_up;
        let trained = threads::spawn(3, |group| {
            train(Job::new(recipe.clone()), Membership::Fixed(group), |_| false).unwrap().averaged.unwrap()
        });
        let mut expected = descended(0, |_| RATE);
        for t in 1..=STEPS {
            let d = if warms_up { f64::min(0.9, (1.0 + t as f64) / (10.0 + t as f64)) } else { 0.9 };
            let weights = descended(t, |_| RATE);
            expected.iter_mut().zip(weights).for_each(|(ema, w)| *ema = d * *ema + (1.0 - d) * w);
        }
        assert_close(&trained.unwrap(), &expected);
    }
}

#[test]
fn the_averages_are_the_same_bits_on_any_workers_and_after_a_resume() {
    let alone = || Membership::Fixed(Group::alone());
    let whole = train(Job::new(averaging()), alone(), |_| false).unwrap();
    let (weights, averages) = bits(&whole);
    assert_ne!(weights, averages);
    // The averages are evaluated.
    let loss: Mean = whole.averaged.as_ref().unwrap().forward(&test_rows()).into();
    assert_eq!(whole.summary.unwrap().scores.get("loss"), Some(loss.sum / loss.count));
    for world in [2, 3] {
        let trained = threads::spawn(world, |group| {
            bits(&train(Job::new(averaging()), Membership::Fixed(group), |_| false).unwrap())
        });
        assert!(trained.unwrap().iter().all(|found| *found == (weights.clone(), averages.clone())));
    }
    let folder = tempfile::tempdir().unwrap();
    run(Recipe { steps: Some(7), ..averaging() }, folder.path(), false);
    let resumed = train(job(averaging(), folder.path(), true), alone(), |_| false).unwrap();
    assert_eq!(bits(&resumed), (weights, averages));
}

#[test]
fn a_decay_that_averages_nothing_and_islands_are_refused() {
    let refused = |recipe: Recipe| {
        let membership = Membership::Fixed(Group::alone());
        train(Job::new(recipe), membership, |_| false).unwrap_err().to_string()
    };
    let error = refused(Recipe { ema: Some(0.999_999_999), ..averaging() });
    assert!(error.contains("--ema 0.999999999: it must be greater than 0 and below 1 in single"), "{error}");
    let mut islands = averaging();
    islands.sync.mode = "local:H=4".parse().unwrap();
    let error = refused(islands);
    assert!(error.contains("each island, or a server, steps weights of its own"), "{error}");
}
