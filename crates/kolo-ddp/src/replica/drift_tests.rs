//! Tests of the comparison of the ranks' values.

use std::sync::Arc;

use kolo_comm::threads;
use kolo_optim::{Kind, ParamSpec, Settings, SpanId};
use kolo_reduction::state::{StateKind, StateName};
use kolo_sync::{Config, Sharding, Statistics};

use super::handle::Replica;

/// Trains until a value of one rank changes without the replica's knowledge; returns each rank's error
/// and its step.
fn train(world: usize, config: Config, culprit: usize, tensor: usize) -> Vec<Option<(u64, String)>> {
    threads::spawn(world, |group| {
        let rank = group.rank().0;
        let spec = |name: &str, kind| ParamSpec::new(name, vec![40], kind);
        let decay = Kind::Parameter { decay: true };
        let specs = vec![spec("first", decay), spec("mean", Kind::Statistic), spec("last", decay)];
        let sgd = kolo_optim::named("sgd", &Settings::default()).unwrap();
        let mut replica = Replica::new(Arc::new(group), specs, vec![1.0; 120], &config, sgd).unwrap();
        for step in 0..6 {
            for _ in replica.shards() {
                let mut pass = replica.begin_shard(1.0, 2.0).unwrap();
                pass.ready(SpanId(2), &[0.5; 40]);
                pass.ready(SpanId(0), &[0.25; 40]);
                pass.finish().unwrap();
            }
            if step == 2 && rank == culprit {
                // The lowest bit of one value.
                let value = &mut replica.core.weights.values[40 * tensor + 7];
                *value = f32::from_bits(value.to_bits() ^ 1);
            }
            if let Err(error) = replica.step(0.1) {
                return Some((step, error.to_string()));
            }
        }
        None
    })
    .unwrap()
}

#[test]
fn a_flipped_bit_is_reported_by_all_ranks_with_rank_and_parameter() {
    let config = |verify_every| Config { shards: Some(3), verify_every, ..Config::default() };
    for (world, every, culprit, tensor, at) in
        [(2, 1, 1, 2, 2), (3, 2, 0, 0, 3), (4, 5, 3, 2, 4), (3, 1, 2, 1, 2)]
    {
        let name = ["first", "mean", "last"][tensor];
        for reported in train(world, config(every), culprit, tensor) {
            let (step, message) = reported.expect("the change should have been seen");
            assert_eq!(step, at, "{message}");
            let rank = format!("`{name}` on rank {culprit}");
            assert!(message.contains(&rank) && message.contains("checkpoint"), "{message}");
        }
    }
    assert!(train(2, config(0), 1, 0).iter().all(Option::is_none), "nobody looks");
    assert!(train(2, config(1), 9, 0).iter().all(Option::is_none), "nothing changes");
}

#[test]
fn local_statistics_may_differ() {
    let config =
        Config { shards: Some(2), verify_every: 1, statistics: Statistics::Local, ..Config::default() };
    assert!(train(2, config.clone(), 1, 1).iter().all(Option::is_none));
    assert!(train(2, config, 1, 0).iter().all(Option::is_some));
}

/// Change on the culprit without the replica's knowledge: a value, or a number of the optimizer's
/// state.
#[derive(Clone, Copy)]
enum Changed {
    Value,
    State(&'static str),
}

/// Trains until something in the middle of a tensor that is divided among three ranks changes on a rank that
/// has it; returns each rank's error and step.
fn train_divided(
    config: &Config,
    world: usize,
    culprit: usize,
    changed: Changed,
) -> Vec<Option<(u64, String)>> {
    const LEN: usize = 3 * kolo_reduction::BLOCK + 5;
    threads::spawn(world, |group| {
        let rank = group.rank().0;
        let spec = |name: &str, len| ParamSpec::new(name, vec![len], Kind::Parameter { decay: true });
        let specs = vec![spec("large", LEN), spec("small", 40)];
        let adam = kolo_optim::named("adam", &Settings::default()).unwrap();
        let mut replica = Replica::new(Arc::new(group), specs, vec![1.0; LEN + 40], config, adam).unwrap();
        for step in 0..6 {
            replica.core.apply_outstanding().unwrap();
            if step == 3 && rank == culprit {
                let name = match changed {
                    Changed::Value => StateName::of_job(StateKind::Weights, ""),
                    Changed::State(array) => StateName::of_job(StateKind::Optimizer, array),
                };
                // One bit of a number in the first block of the large tensor. The next update would round a
                // lower one away.
                let mut is_here = false;
                replica.visit_elements(&name, &(50..51), &mut |_, values| {
                    values[0] = f32::from_bits(values[0].to_bits() ^ 1 << 18);
                    is_here = true;
                });
                assert!(is_here, "rank {rank} does not hold it");
            }
            for _ in replica.shards() {
                let mut pass = replica.begin_shard(1.0, 2.0).unwrap();
                pass.ready(SpanId(1), &[0.25; 40]);
                pass.ready(SpanId(0), &[0.5; LEN]);
                pass.finish().unwrap();
            }
            // With this rate the state does not change the values.
            if let Err(error) = replica.step(0.0) {
                return Some((step, error.to_string()));
            }
        }
        None
    })
    .unwrap()
}

/// Of a divided part two ranks hold the same; the first part belongs to ranks 0 and 1.
#[test]
fn owners_that_differ_are_named_with_what_differs() {
    let state = Changed::State("second_moment");
    for (sharding, changed, name) in [
        (Sharding::Optimizer, state, "second_moment/large"),
        (Sharding::Gradients, state, "second_moment/large"),
        (Sharding::Parameters, state, "second_moment/large"),
        (Sharding::Parameters, Changed::Value, "large"),
    ] {
        let config = |redundancy| Config {
            shards: Some(4),
            verify_every: 2,
            sharding,
            redundancy,
            ..Config::default()
        };
        for (world, culprit) in [(2, 1), (3, 1), (4, 1), (3, 0)] {
            for reported in train_divided(&config(2), world, culprit, changed) {
                let (step, message) = reported.expect("the change should have been seen");
                assert_eq!(step, 3, "{message}");
                // Of two, rank 0 is assumed to be right.
                assert!(message.contains(&format!("`{name}` on rank 1")), "{message}");
            }
        }
        assert!(train_divided(&config(2), 3, 9, changed).iter().all(Option::is_none), "nothing changes");
        // With one owner there is nobody to differ from.
        assert!(train_divided(&config(1), 3, 0, state).iter().all(Option::is_none));
    }
}
