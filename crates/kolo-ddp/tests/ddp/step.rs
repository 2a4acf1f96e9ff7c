//! Order of events, unexpected backward passes, and users' errors.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{WIDTH, backward, pass, replica, run_shard, sgd, specs};
use kolo_comm::{Group, threads};
use kolo_ddp::optimizer::Settings;
use kolo_ddp::{BucketCaps, Config, Error, Replica, ShardPass, SpanId};

/// Every span has a bucket of its own.
const TINY: BucketCaps = BucketCaps { first: 4 * WIDTH, other: 4 * WIDTH };

/// The backward pass of each rank continues only after the first bucket's reduction is over: if reductions
/// started after the pass, this would never happen.
#[test]
fn the_first_bucket_is_reduced_before_the_backward_pass_is_over() {
    for early in threads::spawn(3, |group| {
        let config = Config { caps: Some(TINY), ..Config::default() };
        let mut replica = replica(Arc::new(group), &config, "sgd", Settings::default());
        for step in 0..3 {
            let pass = backward(replica.values().unwrap(), &[step]);
            let mut shard = replica.begin_shard(pass.loss, 1.0).unwrap();
            shard.ready(SpanId(3), &pass.last);
            let until = Instant::now() + Duration::from_secs(30);
            while !shard.with_replica(|replica| replica.is_back(0)) {
                assert!(Instant::now() < until, "bucket 0 was not reduced during the backward pass");
                std::thread::yield_now();
            }
            shard.ready(SpanId(1), &pass.shared[0]);
            shard.ready(SpanId(1), &pass.shared[1]);
            shard.ready(SpanId(0), &pass.first);
            shard.finish().unwrap();
            assert!(replica.step(0.1).unwrap().traffic.started_early >= 1);
        }
    })
    .unwrap()
    {
        early
    }
}

/// The buckets that have been waited for after a step: none, then the requested one, then all.
#[test]
fn a_tensor_waits_for_its_own_bucket_only() {
    let run = |group: Group| {
        let config = Config { caps: Some(TINY), ..Config::default() };
        let mut replica = replica(Arc::new(group), &config, "sgd", Settings::default());
        for step in 0..8 {
            run_shard(&mut replica, &[step]);
            assert_eq!(replica.outstanding(), 0, "a backward pass begins with all values");
            replica.step(0.1).unwrap();
        }
        // The first steps are for measuring.
        let before = replica.outstanding();
        assert_eq!(before, replica.buckets().count());
        let first = replica.latest(SpanId(0)).to_vec();
        assert_eq!(replica.outstanding(), before - 1);
        assert_eq!(first, replica.latest(SpanId(0)), "asked twice, updated once");
        assert_eq!(replica.values().unwrap()[..WIDTH], first);
        assert_eq!(replica.outstanding(), 0);
        replica.values().unwrap().to_vec()
    };
    let config = Config { caps: Some(TINY), forward_overlap: false, ..Config::default() };
    let mut waiting = replica(Arc::new(Group::alone()), &config, "sgd", Settings::default());
    let expected = run(Group::alone());
    for step in 0..8 {
        run_shard(&mut waiting, &[step]);
        waiting.step(0.1).unwrap();
        assert_eq!(waiting.outstanding(), 0);
    }
    assert_eq!(waiting.values().unwrap(), expected);
    threads::spawn(3, run).unwrap();
}

/// A parameter used once, then twice, then not at all, on one rank or on all, with one shard a rank or all
/// on one: always the bits of the sum over shards.
#[test]
fn changing_numbers_of_uses_do_not_change_the_sum() {
    let uses = |step: usize, shard: usize| match (step, shard) {
        (1, _) => 2,
        (2, 1) => 3,
        (3, _) => 0,
        _ => 1,
    };
    let run = |group: Group| {
        let config = Config { shards: Some(4), caps: Some(TINY), ..Config::default() };
        let mut replica = replica(Arc::new(group), &config, "sgd", Settings::default());
        let mut states = Vec::new();
        for step in 0..6 {
            for shard in replica.shards() {
                let of = backward(replica.values().unwrap(), &[step * 4 + shard]);
                let shared = (0..uses(step, shard)).map(|n| (1, &of.shared[n % 2]));
                let gradients = [(3, &of.last)].into_iter().chain(shared).chain([(0, &of.first)]);
                pass(&mut replica, of.loss, 1.0, gradients).unwrap();
            }
            replica.step(0.1).unwrap();
            states.push(replica.values().unwrap().to_vec());
        }
        states
    };
    let alone = run(Group::alone());
    assert_eq!(alone[3][WIDTH..2 * WIDTH], alone[2][WIDTH..2 * WIDTH], "no use, no gradient, no change");
    assert_ne!(alone[2][WIDTH..2 * WIDTH], alone[1][WIDTH..2 * WIDTH]);
    for world in [2, 3, 4] {
        for states in threads::spawn(world, run).unwrap() {
            assert_eq!(states, alone, "{world} ranks");
        }
    }
}

#[test]
fn models_that_differ_are_named() {
    for error in threads::spawn(3, |group| {
        let mut specs = specs();
        if group.rank().0 == 2 {
            specs[1].shape = vec![WIDTH / 2, 2];
        }
        Replica::new(Arc::new(group), specs, vec![0.0; 5 * WIDTH], &Config::default(), sgd()).err().unwrap()
    })
    .unwrap()
    {
        assert!(matches!(error, Error::ModelsDiffer(_)));
        let text = error.to_string();
        assert!(
            text.contains("`shared` [150, 2]") && text.contains("rank 2") && text.contains("[15, 20]"),
            "{text}"
        );
    }
}

#[test]
fn forgotten_and_empty_steps_are_errors() {
    let mut replica = replica(Arc::new(Group::alone()), &Config::default(), "sgd", Settings::default());
    let error = replica.step(0.1).unwrap_err();
    assert!(matches!(error, Error::ShardsMissing { due: 1, done: 0 }), "{error}");
    run_shard(&mut replica, &[1, 2]);
    let error = replica.begin_shard(0.0, 1.0).err().unwrap();
    assert!(error.to_string().contains("call `step`"), "{error}");
    replica.step(0.1).unwrap();
    run_shard(&mut replica, &[]);
    assert!(matches!(replica.step(0.1).unwrap_err(), Error::NoSamples { step: 1 }));
    let error = replica.begin_shard(0.0, 1.0).err().unwrap();
    assert!(matches!(error, Error::Lost), "a step that has failed is not gone on with: {error}");
}

/// A pass that ends without `finish`, as by an error in the middle of it, is named by the next call.
#[test]
fn a_pass_that_is_not_finished_is_named_by_the_next_call() {
    let config = Config { shards: Some(2), ..Config::default() };
    let mut replica = replica(Arc::new(Group::alone()), &config, "sgd", Settings::default());
    run_shard(&mut replica, &[1]);
    let mut pass = replica.begin_shard(1.0, 1.0).unwrap();
    pass.ready(SpanId(3), &[0.5; WIDTH]);
    let nested = pass.with_replica(|replica| replica.begin_shard(1.0, 1.0).err().unwrap().to_string());
    drop(pass);
    let errors = [nested, replica.begin_shard(1.0, 1.0).err().unwrap().to_string()];
    for (error, call) in errors
        .into_iter()
        .zip(["begin_shard"; 2])
        .chain([(replica.step(0.1).unwrap_err().to_string(), "step")])
    {
        assert!(error.contains(&format!("`{call}` cannot be called")), "{error}");
        assert!(
            error.contains("while a shard's pass is under way") && error.contains("ShardPass::finish"),
            "{error}"
        );
    }
}

/// A hook may hand over a gradient, or end its pass, when the step has been given up for another group.
#[test]
fn a_pass_of_a_step_that_was_given_up_harms_no_later_one() {
    let config = Config { elastic: true, ..Config::default() };
    let shared = Arc::new(Mutex::new(replica(Arc::new(Group::alone()), &config, "sgd", Settings::default())));
    let mut stale = ShardPass::begin(shared.clone(), 1.0, 1.0).unwrap();
    let before = stale.with_replica(|replica| {
        replica.regroup(Arc::new(Group::alone())).unwrap();
        replica.values().unwrap().to_vec()
    });
    let pass = ShardPass::begin(shared.clone(), 1.0, 1.0).unwrap();
    stale.ready(SpanId(3), &[1.0; WIDTH]);
    let error = stale.finish().unwrap_err().to_string();
    assert!(error.contains("`finish` cannot be called after its step has been given up"), "{error}");
    pass.finish().unwrap();
    let mut replica = shared.lock().unwrap();
    let error = replica.step(0.1).unwrap_err();
    assert!(matches!(error, Error::NoGradient { step: 0 }), "the stale gradient does not count: {error}");
    assert_eq!(replica.values().unwrap(), before, "no gradient, no change");
}
