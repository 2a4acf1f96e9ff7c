//! One bit an element: nothing is lost, and it learns.

use std::sync::Arc;

use crate::common::checkpoints::at;
use crate::common::{self, noise, pass, run_shard, sgd};
use kolo_comm::{Group, Rank, threads};
use kolo_ddp::checkpoint::{self, Reader, Set};
use kolo_ddp::optimizer::Settings;
use kolo_ddp::{BLOCK, BucketCaps, Config, Kind, ParamSpec, Replica, SpanId, reduction};

const SHARDS: usize = 6;
/// Three blocks, so that small buckets cut it.
const LARGE: usize = 2 * BLOCK + 100;
const LENS: [usize; 4] = [10, LARGE, 300, 40];
/// The index of the statistic.
const MEAN: usize = 3;

fn specs() -> Vec<ParamSpec> {
    let kind = |span| if span == MEAN { Kind::Statistic } else { Kind::Parameter { decay: false } };
    let spec = |(span, &len): (usize, &usize)| ParamSpec::new(format!("p{span}"), vec![len], kind(span));
    LENS.iter().enumerate().map(spec).collect()
}

/// Number of a shard's uses of a tensor: more than in the step before, or none, in some steps.
fn uses(step: usize, shard: usize, span: usize) -> usize {
    match (span, step) {
        (1, 7) | (2, 20) => 3,
        (2, 11) if shard == 2 => 2,
        (0, 13) => 0,
        _ => 1,
    }
}

fn gradient(step: usize, shard: usize, span: usize, use_: usize) -> Vec<f32> {
    // Of different sizes, so that a common scale suits few.
    let value = |i: usize| noise(step * 31 + shard * 7 + span + use_, i) * (1.0 + (i % 5) as f32) * 0.1;
    (0..LENS[span]).map(value).collect()
}

/// SGD with rate 1, and samples that count 1 in total, so that gradients are summed as they are.
fn replica(group: Group, caps: BucketCaps) -> Replica {
    let reduction = common::lively_reduction(reduction::find("ef-sign").unwrap());
    let config = Config { shards: Some(SHARDS), caps: Some(caps), reduction, ..Config::default() };
    let values = vec![0.0; LENS.iter().sum()];
    Replica::new(Arc::new(group), specs(), values, &config, sgd()).unwrap()
}

fn train(replica: &mut Replica, steps: std::ops::Range<usize>) {
    for step in steps {
        for shard in replica.shards() {
            let uses_of =
                |span| (0..uses(step, shard, span)).map(move |n| (span, gradient(step, shard, span, n)));
            let gradients = [2, 1, 0, MEAN].into_iter().flat_map(uses_of);
            pass(replica, 1.0, 1.0 / SHARDS as f64, gradients).unwrap();
        }
        replica.step(1.0).unwrap();
    }
}

/// The applied and the kept gradients are together all that were computed, also with late contributions; of
/// statistics nothing is kept.
#[test]
fn what_is_applied_and_what_is_kept_is_the_sum_of_all_gradients() {
    const STEPS: usize = 40;
    let folder = tempfile::tempdir().unwrap();
    let values = threads::spawn(3, |group| {
        let mut replica = replica(group, BucketCaps::of_mib(0.0625));
        train(&mut replica, 0..STEPS);
        replica.gather_residuals().unwrap();
        if replica.group().rank() == Rank(0) {
            checkpoint::save(folder.path(), &mut replica, &at(STEPS as u64)).unwrap();
        }
        (replica.layout().clone(), replica.values().unwrap().to_vec())
    })
    .unwrap();
    let (layout, values) = &values[0];
    let reader = Reader::open(&checkpoint::path(folder.path(), STEPS as u64)).unwrap();
    let mut residuals = vec![0.0f64; layout.len()];
    for shard in 0..SHARDS {
        let mut own = vec![0.0f32; layout.len()];
        reader.read(Set::Residuals, &format!("shard{shard}/mean_residual/"), layout, 0, &mut own).unwrap();
        assert!(own[layout.span(SpanId(1)).range()].iter().any(|kept| *kept != 0.0));
        assert!(own[layout.span(SpanId(MEAN)).range()].iter().all(|kept| *kept == 0.0));
        residuals.iter_mut().zip(own).for_each(|(sum, kept)| *sum += f64::from(kept));
    }
    for (span, len) in LENS.iter().enumerate() {
        let mut computed = vec![0.0f64; *len];
        for (step, shard) in (0..STEPS).flat_map(|step| (0..SHARDS).map(move |shard| (step, shard))) {
            for n in 0..uses(step, shard, span) {
                let gradient = gradient(step, shard, span, n);
                computed.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += f64::from(g));
            }
        }
        // A parameter goes against its gradient, a statistic with its change.
        let sign = if span == MEAN { 1.0 } else { -1.0 };
        let range = layout.span(SpanId(span)).range();
        let applied = values[range.clone()].iter().map(|value| sign * f64::from(*value));
        for (i, ((applied, kept), computed)) in applied.zip(&residuals[range]).zip(computed).enumerate() {
            let off = (applied + kept - computed).abs();
            assert!(off < 2e-4, "element {i} of p{span}: {applied} + {kept} is not {computed}");
        }
    }
}

/// Compared with the sum: after the same steps the loss has fallen about as far.
#[test]
fn it_learns() {
    let losses = |name: &str| {
        let reduction = common::lively_reduction(reduction::find(name).unwrap());
        let config = Config { shards: Some(4), reduction, ..Config::default() };
        let mut replica = common::replica(Arc::new(Group::alone()), &config, "sgd", Settings::default());
        let step = |_| {
            replica.shards().for_each(|shard| run_shard(&mut replica, &[shard, shard + 4]));
            replica.step(0.05).unwrap().loss
        };
        (0..200).map(step).collect::<Vec<f64>>()
    };
    let (sum, sign) = (losses("sum"), losses("ef-sign"));
    assert!(sum[199] < 0.5 * sum[0], "{} to {}", sum[0], sum[199]);
    let (fallen, expected) = (sign[0] - sign[199], sum[0] - sum[199]);
    assert!(fallen > 0.9 * expected, "by {fallen}, with the sum by {expected}");
}

/// Continuing with another reduction, or other shards, would lose the kept residuals.
#[test]
fn a_checkpoint_of_another_reduction_or_of_other_shards_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let new = |name: &str, shards| {
        let reduction = common::lively_reduction(reduction::find(name).unwrap());
        let config = Config { shards: Some(shards), reduction, ..Config::default() };
        common::replica(Arc::new(Group::alone()), &config, "sgd", Settings::default())
    };
    let with = checkpoint::save(folder.path(), &mut new("ef-sign", 4), &at(1)).unwrap();
    let without = checkpoint::save(folder.path(), &mut new("sum", 4), &at(2)).unwrap();
    for (path, name, shards, text) in [
        (&with, "sum", 4, "does not use"),
        (&with, "ef-sign", 6, "of 4 shards, but this job has 6"),
        (&without, "ef-sign", 4, "a reduction that keeps none"),
    ] {
        let error = checkpoint::load(path, &mut new(name, shards)).unwrap_err().to_string();
        assert!(error.contains(text) && error.contains("residuals.safetensors"), "{error}");
    }
}
