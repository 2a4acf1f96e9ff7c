//! The promise: the same bits on any number of ranks, with any buckets; and the right gradient.

use std::sync::Arc;

use crate::common::{self, Combination, WIDTH, backward, bits, clip, combinations, replica, run_shard};
use kolo_comm::{Group, threads};
use kolo_ddp::optimizer::Settings;
use kolo_ddp::table::Choice;
use kolo_ddp::transform::TRANSFORMS;
use kolo_ddp::{BucketCaps, Config, Kind, ParamSpec, Replica, Sampler};
use kolo_testing::is_thorough;

const SAMPLES: usize = 50;

/// Trains two epochs (with a short last batch) and returns the bits of the values after each.
fn train(group: Group, shards: usize, config: &Config, combination: &Combination) -> Vec<Vec<u32>> {
    let (optimizer, settings, reduction) = combination.clone();
    let config = Config { shards: Some(shards), reduction, ..config.clone() };
    let mut replica = replica(Arc::new(group), &config, optimizer.name, settings);
    let sampler = Sampler::new(SAMPLES, 3, shards, 1).unwrap();
    let mut states = Vec::new();
    for epoch in 0..2 {
        let order = sampler.epoch(epoch);
        for step in 0..sampler.steps() {
            for shard in replica.shards() {
                run_shard(&mut replica, &order.shard(step, shard));
            }
            replica.step(0.05).unwrap();
        }
        states.push(bits(&mut replica));
    }
    states
}

#[test]
fn the_same_bits_on_any_number_of_ranks_with_any_buckets() {
    let large = BucketCaps::of_mib(25.0);
    let small = BucketCaps { first: 4 * WIDTH, other: 8 * WIDTH };
    // Without transforms, and with each of the table.
    let transforms = TRANSFORMS.iter().map(|entry| vec![Choice::new(entry.name)]);
    let transforms: Vec<_> = [Vec::new()].into_iter().chain(transforms).collect();
    let combinations = combinations();
    let with_transforms = |shards| transforms.iter().map(move |transforms| (shards, transforms));
    let kinds = [1, 4, 6, 7].into_iter().flat_map(with_transforms);
    let cases: Vec<_> = kinds.flat_map(|kind| combinations.iter().map(move |c| (kind, c))).collect();
    // The number of combinations is no multiple of the step, so that each is there with some shards.
    let step = if is_thorough() { 1 } else { 7 };
    assert!(step == 1 || !combinations.len().is_multiple_of(step));
    for ((shards, transforms), combination) in cases.into_iter().step_by(step) {
        let mut expected: Option<Vec<Vec<u32>>> = None;
        for (world, caps, forward_overlap) in [
            (1, large, false),
            (1, small, true),
            (2, small, true),
            (3, large, true),
            (4, small, false),
            (5, small, true),
            (9, large, true),
        ] {
            let caps = Some(caps);
            let transforms = transforms.clone();
            let config = Config { caps, transforms, forward_overlap, verify_every: 3, ..Config::default() };
            for states in threads::spawn(world, |group| train(group, shards, &config, combination)).unwrap() {
                let expected = expected.get_or_insert_with(|| states.clone());
                assert!(*expected == states, "{shards} shards on {world} ranks, {combination:?}, {config:?}");
            }
        }
    }
}

/// The distribution of shards does not matter either, down to none; nor do more ranks than shards.
#[test]
fn unequal_shares_end_in_the_same_bits() {
    let small = BucketCaps { first: 4 * WIDTH, other: 8 * WIDTH };
    let cases = [1, 6, 7].into_iter().flat_map(|n| combinations().into_iter().map(move |c| (n, c)));
    for (shards, combination) in cases.step_by(if is_thorough() { 1 } else { 4 }) {
        let config = |shares: Option<&[f64]>| Config {
            caps: Some(small),
            transforms: clip(1.5),
            shares: shares.map(<[f64]>::to_vec),
            verify_every: 3,
            ..Config::default()
        };
        let run = |world: usize, shares: Option<&[f64]>| {
            let config = config(shares);
            threads::spawn(world, |group| train(group, shards, &config, &combination)).unwrap()
        };
        let expected = run(1, None).remove(0);
        for shares in [
            &[3.0, 1.0][..],
            &[0.0, 1.0],
            &[0.2, 0.5, 0.3],
            &[1.0, 0.0, 4.0, 1.0],
            &[5.0, 1.0, 1.0, 1.0, 0.5, 2.0, 1.0, 1.0],
        ] {
            for states in run(shares.len(), Some(shares)) {
                assert!(states == expected, "{shards} shards by {shares:?}, {combination:?}");
            }
        }
    }
}

/// A parameter many times larger than a bucket, used twice in every pass and three times in one of them.
#[test]
fn slices_do_not_change_the_bits() {
    const LEN: usize = 70_000;
    let train = |group: Group, caps: BucketCaps, combination: &Combination| {
        let (optimizer, settings, reduction) = combination.clone();
        let rank = group.rank().0;
        let spec = |name: &str, shape: &[usize]| {
            ParamSpec::new(name, shape.to_vec(), Kind::Parameter { decay: true })
        };
        let specs = vec![spec("small", &[10]), spec("large", &[250, 280]), spec("last", &[300])];
        let values = vec![rank as f32; LEN + 310];
        let (caps, transforms) = (Some(caps), clip(1.0));
        let config = Config { shards: Some(4), caps, transforms, reduction, ..Config::default() };
        let optimizer = optimizer.build(&settings).unwrap();
        let mut replica = Replica::new(Arc::new(group), specs, values, &config, optimizer).unwrap();
        for step in 0..8 {
            for shard in replica.shards() {
                let uses = if step == 6 { 3 } else { 2 };
                let uses = [(2, 300, 1), (1, LEN, uses), (0, 10, 1)].into_iter();
                let gradients = uses.flat_map(|(span, len, uses)| {
                    let noises = move |time| &common::noises(shard * 10 + step + time)[..len];
                    (0..uses).map(move |time| (span, noises(time)))
                });
                common::pass(&mut replica, 1.0, 5.0, gradients).unwrap();
            }
            replica.step(0.01).unwrap();
        }
        (bits(&mut replica), replica.buckets().count())
    };
    for combination in combinations() {
        let run = |world, mib| {
            let train = |group| train(group, BucketCaps::of_mib(mib), &combination);
            threads::spawn(world, train).unwrap()
        };
        let cuts = !combination.2.needs_whole_tensors();
        let whole = run(1, 25.0).remove(0);
        for (world, mib) in [(1, 0.0625), (3, 0.0625), (4, 0.15)] {
            for (bits, buckets) in run(world, mib) {
                assert!(!cuts || buckets > whole.1 + 1, "{buckets} buckets");
                assert!(bits == whole.0, "{combination:?}, {world} ranks, buckets of {mib} MiB");
            }
        }
    }
}

/// Plain SGD with rate 1 shows the gradient: N ranks against one pass over the whole batch.
#[test]
fn the_gradient_is_that_of_the_whole_batch() {
    for world in 1..=4 {
        let batch: Vec<usize> = (0..14).collect();
        for moved in threads::spawn(world, |group| {
            let config = Config { shards: Some(world), ..Config::default() };
            let mut replica = replica(Arc::new(group), &config, "sgd", Settings::default());
            let before = replica.values().unwrap().to_vec();
            for shard in replica.shards() {
                let share = kolo_comm::tree::share(batch.len(), world, kolo_comm::Rank(shard));
                run_shard(&mut replica, &batch[share]);
            }
            let report = replica.step(1.0).unwrap();
            assert_eq!(report.count, 14.0);
            let whole = backward(&before, &batch);
            assert!((report.loss - whole.loss / 14.0).abs() < 1e-12 * whole.loss);
            let gradient: Vec<f64> = before
                .iter()
                .zip(replica.values().unwrap())
                .map(|(b, a)| f64::from(*b) - f64::from(*a))
                .collect();
            (gradient, whole)
        })
        .unwrap()
        {
            let (gradient, whole) = moved;
            let shared: Vec<f32> = whole.shared[0].iter().zip(&whole.shared[1]).map(|(a, b)| a + b).collect();
            for (span, expected) in [(0, &whole.first), (1, &shared), (3, &whole.last)] {
                let got = &gradient[span * WIDTH..(span + 1) * WIDTH];
                let error: f64 = got
                    .iter()
                    .zip(expected)
                    .map(|(g, e)| (g - f64::from(*e) / 14.0).powi(2))
                    .sum::<f64>()
                    .sqrt();
                let size: f64 = expected.iter().map(|e| (f64::from(*e) / 14.0).powi(2)).sum::<f64>().sqrt();
                assert!(error / size < 1e-6, "{world} ranks, span {span}: {}", error / size);
            }
            assert!(gradient[2 * WIDTH..3 * WIDTH].iter().all(|g| *g == 0.0), "the unused parameter stays");
        }
    }
}
