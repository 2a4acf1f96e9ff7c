//! Frozen tensors: the same on all ranks, saved, and never changed.

use std::sync::Arc;

use crate::common::checkpoints::{at, cut_and_resume};
use crate::common::{bits, noise, pass, sgd};
use kolo_comm::{Group, threads};
use kolo_ddp::element::of_integers;
use kolo_ddp::optimizer::{self, OPTIMIZERS, Settings};
use kolo_ddp::{Config, Element, Kind, ParamSpec, Replica, SpanId, checkpoint};

const LEN: usize = 40;
const BASE: SpanId = SpanId(1);

/// A trained tensor between a frozen one and integers, and a statistic.
fn specs() -> Vec<ParamSpec> {
    let positions = ParamSpec::new("positions", vec![2], Kind::Frozen);
    vec![
        ParamSpec::new("head", vec![LEN], Kind::Parameter { decay: true }),
        ParamSpec::new("base", vec![LEN], Kind::Frozen),
        ParamSpec::new("mean", vec![LEN], Kind::Statistic),
        ParamSpec { element: Element::I64, ..positions },
    ]
}

/// Each rank has values of its own at first.
fn values(rank: usize) -> Vec<f32> {
    let floats = (0..3 * LEN).map(|i| noise(rank, i));
    floats.chain(of_integers([rank as i64, -5])).collect()
}

fn replica(group: Group, optimizer: &str) -> Replica {
    let values = values(group.rank().0);
    let config = Config { shards: Some(4), verify_every: 1, ..Config::default() };
    let optimizer = optimizer::named(optimizer, &Settings::default()).unwrap();
    Replica::new(Arc::new(group), specs(), values, &config, optimizer).unwrap()
}

fn step(replica: &mut Replica) {
    let number = replica.steps() as usize;
    for shard in replica.shards() {
        let gradient =
            |seed: usize| (0..LEN).map(|i| noise(seed + 10 * number + shard, i)).collect::<Vec<_>>();
        pass(replica, 1.0, 2.0, [(0, gradient(1)), (2, gradient(2))]).unwrap();
    }
    replica.step(0.05).unwrap();
}

#[test]
fn all_ranks_have_rank_0s_and_no_step_changes_or_sums_it() {
    for entry in OPTIMIZERS {
        let train = |group: Group| {
            let mut replica = replica(group, entry.name);
            (0..3).for_each(|_| step(&mut replica));
            let in_buckets = |span: SpanId| {
                let mut slices = replica.buckets().flat_map(|bucket| &bucket.slices);
                slices.any(|slice| slice.span == span)
            };
            assert_eq!([0, 1, 2, 3].map(|span| in_buckets(SpanId(span))), [true, false, true, false]);
            assert_eq!(replica.latest(BASE), &values(0)[LEN..2 * LEN], "{}", entry.name);
            assert_eq!(replica.latest(SpanId(3)), of_integers([0, -5]));
            assert_ne!(replica.latest(SpanId(0)), &values(0)[..LEN]);
            bits(&mut replica)
        };
        let alone = train(Group::alone());
        for world in [2, 3] {
            assert!(threads::spawn(world, train).unwrap().iter().all(|rank| *rank == alone), "{world} ranks");
        }
    }
}

#[test]
fn a_checkpoint_brings_it_back_whatever_the_values_before() {
    let before = |replica: &mut Replica| (0..3).for_each(|_| step(replica));
    let new = |group: Group| replica(group, "adamw");
    let mut expected = new(Group::alone());
    (0..5).for_each(|_| step(&mut expected));
    let expected = bits(&mut expected);
    for worlds in [[1, 2], [3, 1]] {
        let resumed = cut_and_resume(3, worlds, new, before, |replica| {
            (0..2).for_each(|_| step(replica));
            bits(replica)
        });
        assert!(resumed.iter().all(|rank| *rank == expected), "{worlds:?}");
    }
}

/// It is neither in the sums of a step nor in the state of the optimizer: in a checkpoint it takes only its
/// values.
#[test]
fn it_costs_its_values_in_a_checkpoint() {
    let mut replica = replica(Group::alone(), "adamw");
    step(&mut replica);
    let folder = tempfile::tempdir().unwrap();
    let path = checkpoint::save(folder.path(), &mut replica, &at(1)).unwrap();
    let data = std::fs::read(path.join("optimizer.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&data).unwrap();
    assert!(!tensors.names().is_empty());
    assert!(tensors.names().iter().all(|name| !name.ends_with("base") && !name.ends_with("positions")));
}

#[test]
fn another_kind_of_elements_on_another_rank_is_named() {
    let errors = threads::spawn(2, |group| {
        let mut specs = specs();
        if group.rank().0 == 1 {
            specs[3] = ParamSpec::new("positions", vec![8], Kind::Frozen);
        }
        let result = Replica::new(Arc::new(group), specs, values(0), &Config::default(), sgd());
        result.err().unwrap().to_string()
    });
    for error in errors.unwrap() {
        assert!(error.contains("`positions`") && error.contains("I64"), "{error}");
    }
}
