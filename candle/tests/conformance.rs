//! Promises of `Ddp` that hold for every binding, for this one: the same bits on any number of workers with
//! every optimizer and reduction, after a resume and after a change of the group.

mod common;

use std::sync::Arc;

use kolo_comm::{Group, threads};
use kolo_ddp::checkpoint::{self, Position};
use kolo_ddp::optimizer::{self, OPTIMIZERS, Optimizer, Settings};
use kolo_ddp::reduction::{REDUCTIONS, Reducer};
use kolo_ddp::table::Entry;
use kolo_ddp::{Config, Statistics};

use common::{bits, config, ddp, sgd, step};

const STEPS: usize = 5;

/// Returns the losses of all steps, and the bits of all values at the end.
fn train(group: Group, config: &Config, optimizer: Box<dyn Optimizer>) -> (Vec<f64>, Vec<u32>) {
    let (mut ddp, _) = ddp(group, config, optimizer);
    let losses = (0..STEPS).map(|_| step(&mut ddp, 0.02).loss).collect();
    (losses, bits(&ddp))
}

#[test]
fn any_number_of_workers_ends_in_the_same_bits() {
    let alone = train(Group::alone(), &config(), sgd());
    assert!(alone.0.iter().all(|loss| loss.is_finite()) && alone.0[0] != alone.0[STEPS - 1]);
    for world in [2, 3, 5] {
        for rank in threads::spawn(world, |group| train(group, &config(), sgd())).unwrap() {
            assert!(rank == alone, "{world} workers");
        }
    }
}

/// Settings with which every part of an optimizer's rule has an effect.
fn lively(entry: &Entry<dyn Optimizer>) -> Settings {
    let wishes = [("weight_decay", 0.01), ("momentum", 0.9)].into_iter();
    wishes
        .filter(|(name, _)| entry.setting(name).is_some())
        .fold(Settings::default(), |settings, (name, value)| settings.with(name, value))
}

#[test]
fn every_optimizer_ends_in_the_same_bits() {
    for entry in OPTIMIZERS {
        let optimizer = || entry.build(&lively(entry)).unwrap();
        let alone = train(Group::alone(), &config(), optimizer());
        for rank in threads::spawn(2, |group| train(group, &config(), optimizer())).unwrap() {
            assert!(rank == alone, "{}", entry.name);
        }
    }
}

#[test]
fn every_reduction_ends_in_the_same_bits() {
    for entry in REDUCTIONS {
        let sizes =
            [("dense_below", 0.0), ("density", 0.1), ("rank", 2.0), ("min_rate", 1.0), ("block", 100.0)];
        let settings = sizes
            .into_iter()
            .chain([("warmup_steps", 2.0)])
            .filter(|(name, _)| entry.setting(name).is_some())
            .fold(Settings::default(), |settings, (name, value)| settings.with(name, value));
        let reduction: Arc<dyn Reducer> = entry.build(&settings).unwrap().into();
        // One reduction needs a second moment that stays as it is.
        let frozen = Settings::default().with("freeze_after", 2.0).with("epsilon", 0.1);
        let candidates = [("sgd", Settings::default()), ("adam", Settings::default()), ("adam", frozen)];
        let build = |(name, settings): &(&str, Settings)| optimizer::named(name, settings).unwrap();
        let fitting = candidates.into_iter().find(|choice| reduction.fits(&*build(choice), &[]).is_ok());
        let fitting = fitting.unwrap_or_else(|| panic!("{}: with which optimizer?", entry.name));
        let config = Config { reduction: reduction.clone(), ..config() };
        let alone = train(Group::alone(), &config, build(&fitting));
        for rank in threads::spawn(2, |group| train(group, &config, build(&fitting))).unwrap() {
            assert!(rank == alone, "{} with {}", entry.name, fitting.0);
        }
    }
}

/// All shards together, each with a clone of the model that has its own gradients and statistics.
#[test]
fn shards_that_run_together_end_in_the_bits_of_shards_in_turn() {
    let together = |group: Group| {
        let (mut ddp, _) = ddp(group, &config(), sgd());
        let mut losses = Vec::new();
        for step in 0..STEPS {
            let inputs = ddp.shards().map(|shard| (common::samples(step, shard) > 0).then_some(shard));
            let forward =
                |net: &kolo_candle::CandleModel<common::Net>, shard, _: &_| net.loss(step, shard).unwrap();
            ddp.cross_shard_passes(inputs.collect(), forward).unwrap();
            losses.push(ddp.step(0.02).unwrap().loss);
        }
        (losses, bits(&ddp))
    };
    let in_turn = train(Group::alone(), &config(), sgd());
    assert!(together(Group::alone()) == in_turn);
    for rank in threads::spawn(2, together).unwrap() {
        assert!(rank == in_turn);
    }
}

#[test]
fn statistics_of_each_worker_leave_the_parameters_as_they_are() {
    let local = Config { statistics: Statistics::Local, verify_every: 0, ..config() };
    let train = |group: Group, config: &Config| {
        let (mut ddp, _) = ddp(group, config, sgd());
        (0..3).for_each(|_| drop(step(&mut ddp, 0.02)));
        ddp.weights_sha256().unwrap()
    };
    let expected = train(Group::alone(), &config());
    assert_eq!(threads::spawn(2, |group| train(group, &local)).unwrap(), [expected.clone(), expected]);
}

#[test]
fn a_resumed_run_ends_in_the_bits_of_an_uninterrupted_one() {
    let adamw = || optimizer::named("adamw", &Settings::default()).unwrap();
    let whole = train(Group::alone(), &config(), adamw()).1;
    let folder = tempfile::tempdir().unwrap();
    threads::spawn(2, |group| {
        let (mut ddp, _) = ddp(group, &config(), adamw());
        (0..2).for_each(|_| drop(step(&mut ddp, 0.02)));
        if ddp.rank().0 == 0 {
            let position = Position { step: 2, epoch: 0, step_in_epoch: 2, notes: ().into() };
            ddp.with_replica(|replica| checkpoint::save(folder.path(), replica, &position)).unwrap();
        }
        ddp.group().barrier().unwrap();
    })
    .unwrap();
    for world in [1, 3] {
        let resumed = threads::spawn(world, |group| {
            let (mut ddp, _) = ddp(group, &config(), adamw());
            assert_eq!(ddp.resume(folder.path()).unwrap().unwrap().position.step, 2);
            (2..STEPS).for_each(|_| drop(step(&mut ddp, 0.02)));
            bits(&ddp)
        });
        assert!(resumed.unwrap().iter().all(|bits| *bits == whole), "{world} workers");
    }
}

#[test]
fn a_layer_that_no_loss_uses_keeps_its_values_and_is_named() {
    let (mut ddp, vars) = ddp(Group::alone(), &config(), sgd());
    let values =
        |name: &str| vars.data().lock().unwrap()[name].flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let names = ["unused.weight", "norm.running_mean", "shared.weight"];
    let before = names.map(values);
    let warnings = step(&mut ddp, 0.02).warnings;
    let after = names.map(values);
    assert!(before[0] == after[0] && before[1] != after[1] && before[2] != after[2]);
    let named: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert!(
        named.iter().any(|warning| warning.starts_with("parameter `unused.weight` had no gradient")),
        "{named:?}"
    );
    assert_eq!(named.len(), 2, "{named:?}");
}
