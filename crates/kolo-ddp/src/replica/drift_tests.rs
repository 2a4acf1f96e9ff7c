//! Tests of the comparison of the ranks' values.

use std::sync::Arc;

use kolo_comm::threads;
use kolo_optim::{Kind, ParamSpec, Settings, SpanId};
use kolo_sync::{Config, Statistics};

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
