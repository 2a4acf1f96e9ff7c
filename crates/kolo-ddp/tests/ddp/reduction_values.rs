//! The results of reductions, compared with plain references in double precision, written from the papers'
//! equations: steps of uneven numbers of samples, shards without any, learning rates that change, scaled
//! losses, a step that overflows, late uses of a tensor.
//!
//! Other tests compare bits of different numbers of ranks, which agree on a wrong number as well.

mod reference;

use std::sync::Arc;

use self::reference::{Method, Shadow};
use crate::common::checkpoints::at;
use crate::common::{lively_reduction, noise, sgd};
use kolo_comm::{Group, Rank, threads};
use kolo_ddp::checkpoint::{self, Reader, Set};
use kolo_ddp::optimizer::{self, Optimizer, Settings};
use kolo_ddp::reduction::{REDUCTIONS, Reducer};
use kolo_ddp::table::Entry;
use kolo_ddp::{BucketCaps, Config, Kind, LossScaling, ParamSpec, Replica, SpanId};

const SHARDS: usize = 6;
const STEPS: usize = 24;
/// Shapes of the tensors: a vector, a matrix, and a statistic.
const SHAPES: [&[usize]; 3] = [&[90], &[15, 20], &[40]];
const MATRIX: usize = 1;
const STATISTIC: usize = 2;
/// In this step some shards use the matrix twice.
const LATE: usize = 5;
/// Before this step one overflows, if losses are scaled.
const OVERFLOW: usize = 9;
const SCALING: LossScaling = LossScaling { initial: 64.0, growth: 2.0, backoff: 0.5, growth_interval: 7 };

fn len(span: usize) -> usize {
    SHAPES[span].iter().product()
}

fn specs() -> Vec<ParamSpec> {
    let spec = |span: usize| {
        let kind =
            if span == STATISTIC { Kind::Statistic } else { Kind::Parameter { decay: span == MATRIX } };
        ParamSpec::new(format!("p{span}"), SHAPES[span].to_vec(), kind)
    };
    (0..SHAPES.len()).map(spec).collect()
}

/// Samples of a shard: even ones, many, one in all as in a short last batch, and all different.
fn count(step: usize, shard: usize) -> usize {
    match step % 5 {
        0 | 3 => 7,
        1 => 64,
        2 => usize::from(shard == 1),
        _ => [1, 7, 64, 0, 3, 2][shard],
    }
}

/// The sum over a shard's samples; `late` selects that of a second use of a tensor.
fn gradient(step: usize, shard: usize, span: usize, late: bool) -> Vec<f32> {
    let samples = count(step, shard) as f32;
    let seed = 7 + step * 31 + shard * 5 + span + if late { 1_000 } else { 0 };
    (0..len(span)).map(|i| samples * noise(seed, i) * (1.0 + (i % 5) as f32) * 0.1).collect()
}

fn is_late(step: usize, shard: usize, span: usize) -> bool {
    step == LATE && span == MATRIX && shard.is_multiple_of(2)
}

fn rate(step: usize) -> f64 {
    [1.0, 0.5, 0.25][step % 3]
}

/// Returns an optimizer that shows its gradients: SGD, or Adam (then with true) for a reduction of the
/// momentum.
fn optimizer_of(reducer: &dyn Reducer) -> (Box<dyn Optimizer>, bool) {
    let sgd = sgd();
    if reducer.fits(&*sgd, &[]).is_ok() {
        return (sgd, false);
    }
    let settings = Settings::default().with("freeze_after", reference::WARM_UP as f64).with("epsilon", 0.1);
    (optimizer::named("adam", &settings).unwrap(), true)
}

/// The values of all tensors after each step, and the shards' final state for each name.
struct Outcome {
    values: Vec<Vec<f32>>,
    kept: Vec<(String, Vec<Vec<f32>>)>,
}

fn train(group: Group, entry: &'static Entry<dyn Reducer>, is_scaled: bool) -> Option<Outcome> {
    let reduction = lively_reduction(entry);
    let (optimizer, _) = optimizer_of(&*reduction);
    let config = Config {
        shards: Some(SHARDS),
        caps: Some(BucketCaps::of_mib(0.0005)),
        reduction: reduction.clone(),
        loss_scaling: is_scaled.then_some(SCALING),
        ..Config::default()
    };
    let zeros = vec![0.0; (0..SHAPES.len()).map(len).sum()];
    let mut replica = Replica::new(Arc::new(group), specs(), zeros, &config, optimizer).unwrap();
    let mut values = Vec::new();
    for step in 0..STEPS {
        if is_scaled && step == OVERFLOW {
            pass(&mut replica, step, f32::INFINITY);
            assert!(replica.step(rate(step)).unwrap().skipped);
        }
        pass(&mut replica, step, 1.0);
        let report = replica.step(rate(step)).unwrap();
        assert!(!report.skipped);
        assert_eq!(report.count, (0..SHARDS).map(|shard| count(step, shard)).sum::<usize>() as f64);
        values.push(replica.values().unwrap().to_vec());
    }
    replica.gather_residuals().unwrap();
    if replica.group().rank() != Rank(0) {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = checkpoint::save(folder.path(), &mut replica, &at(STEPS as u64)).unwrap();
    let (reader, layout) = (Reader::open(&path).unwrap(), replica.layout().clone());
    let of_shard = |name: &str, shard| {
        let mut kept = vec![0.0; layout.len()];
        reader.read(Set::Residuals, &format!("shard{shard}/{name}/"), &layout, 0, &mut kept).unwrap();
        kept
    };
    let names = reduction.shard_state().iter();
    let kept = names.map(|name| (name.to_string(), (0..SHARDS).map(|shard| of_shard(name, shard)).collect()));
    Some(Outcome { values, kept: kept.collect() })
}

fn pass(replica: &mut Replica, step: usize, factor: f32) {
    let scale = replica.loss_scale() * factor;
    for shard in replica.shards() {
        let mut pass = replica.begin_shard(1.0, count(step, shard) as f64).unwrap();
        for span in (0..SHAPES.len()).rev().filter(|_| count(step, shard) > 0) {
            // Statistics have no scale.
            let scale = if span == STATISTIC { 1.0 } else { scale };
            let scaled = |late| -> Vec<f32> {
                gradient(step, shard, span, late).into_iter().map(|g| g * scale).collect()
            };
            pass.ready(SpanId(span), &scaled(false));
            if is_late(step, shard, span) {
                pass.ready(SpanId(span), &scaled(true));
            }
        }
        pass.finish().unwrap();
    }
}

fn in_f64(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

/// Compares a tensor in every step with its reference.
fn compare(name: &str, span: usize, outcome: &Outcome, is_adam: bool) {
    let first: usize = (0..span).map(len).sum();
    let range = first..first + len(span);
    let method = Method::of(name, span == STATISTIC, SHAPES[span]);
    let mut shadow = Shadow::new(method, is_adam && span != STATISTIC, SHARDS, len(span));
    for step in 0..STEPS {
        let counts: Vec<f64> = (0..SHARDS).map(|shard| count(step, shard) as f64).collect();
        let of = |late: bool| -> Vec<Vec<f64>> {
            let is_there = |shard| !late || (is_late(step, shard, span) && count(step, shard) > 0);
            let of_shard = |shard| match is_there(shard) {
                true => in_f64(&gradient(step, shard, span, late)),
                false => vec![0.0; len(span)],
            };
            (0..SHARDS).map(of_shard).collect()
        };
        let values = in_f64(&outcome.values[step][range.clone()]);
        let rate = if span == STATISTIC { -1.0 } else { rate(step) };
        shadow.step(&of(false), &of(true), &counts, rate, &values);
        let worst = shadow.worst(&values);
        assert!(worst <= 1.0, "{name}, p{span}, step {step}: {worst} times the bound");
    }
    let kept = outcome.kept.iter();
    let sums: Vec<f64> = kept.map(|(_, shards)| sum_of(shards, range.clone())).collect();
    shadow.expect_kept(name, &sums);
}

/// Sums magnitudes over shards and elements.
fn sum_of(shards: &[Vec<f32>], range: std::ops::Range<usize>) -> f64 {
    shards.iter().flat_map(|kept| &kept[range.clone()]).map(|kept| f64::from(kept.abs())).sum()
}

#[test]
fn every_reduction_gives_the_values_of_its_paper() {
    for entry in REDUCTIONS {
        let (_, is_adam) = optimizer_of(&*lively_reduction(entry));
        for (world, is_scaled) in [(1, false), (2, false), (3, false), (1, true), (3, true)] {
            let outcomes = threads::spawn(world, move |group| train(group, entry, is_scaled)).unwrap();
            let outcome = outcomes.into_iter().flatten().next().unwrap();
            (0..SHAPES.len()).for_each(|span| compare(entry.name, span, &outcome, is_adam));
        }
    }
}
