//! Updates that are one step late: the same bits on any number of ranks, and a whole step of time for each
//! reduction. `sync_values.rs` has the weights of a plain loop.

use std::ops::Range;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::checkpoints::cut_and_resume;
use crate::common::{
    self, Combination, NAMES, WIDTH, backward, bits, clip, combinations, replica, run_shard,
};
use kolo_comm::{Group, threads};
use kolo_ddp::checkpoint;
use kolo_ddp::optimizer::Settings;
use kolo_ddp::reduction;
use kolo_ddp::{BucketCaps, Config, Error, LastStep, Replica, Sampler, SpanId};
use kolo_testing::selected;

const SHARDS: usize = 4;
/// Number of samples with which steps end in a batch in which some shards have no samples.
const SAMPLES: usize = 41;
/// Number of steps after which all updates are applied.
const EVERY: u64 = 5;
const STEPS: u64 = 18;
/// Every span has a bucket of its own.
const TINY: BucketCaps = BucketCaps { first: 4 * WIDTH, other: 4 * WIDTH };

fn config() -> Config {
    let sync = "delayed:1".parse().unwrap();
    Config { shards: Some(SHARDS), sync, backup_every: EVERY, ..Config::default() }
}

/// Result of a run: the bits of the values, and the known results of all steps.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    values: Vec<u32>,
    known: Vec<LastStep>,
}

fn rate(step: u64) -> f64 {
    0.05 / (1.0 + 0.1 * step as f64)
}

fn sampler() -> Sampler {
    Sampler::new(SAMPLES, 2, SHARDS, 1).unwrap()
}

/// A shard's samples in a step.
fn samples(sampler: &Sampler, step: u64, shard: usize) -> Vec<usize> {
    let (epoch, within) = (step as usize / sampler.steps(), step as usize % sampler.steps());
    sampler.epoch(epoch).shard(within, shard)
}

/// Runs one shard's passes with these values. Each tensor has one gradient, so that nothing is unexpected.
fn pass(replica: &mut Replica, values: &[f32], samples: &[usize]) {
    let pass = backward(values, samples);
    let shared = pass.shared[0].iter().zip(&pass.shared[1]).map(|(a, b)| a + b).collect();
    let gradients = [(3, pass.last), (1, shared), (0, pass.first), (4, pass.mean)];
    let used = gradients.into_iter().filter(|_| !samples.is_empty());
    common::pass(replica, pass.loss, samples.len() as f64, used).unwrap();
}

/// Trains over those steps, after the last of which all updates are applied.
fn train(replica: &mut Replica, steps: Range<u64>) -> Run {
    let (sampler, mut known) = (sampler(), Vec::new());
    for step in steps.clone() {
        for shard in replica.shards() {
            let values: Vec<f32> =
                (0..NAMES.len()).flat_map(|id| replica.latest(SpanId(id)).to_vec()).collect();
            pass(replica, &values, &samples(&sampler, step, shard));
        }
        let ends = step + 1 == steps.end;
        if ends {
            replica.end_round();
        }
        let report = replica.step(rate(step)).unwrap();
        let last = report.known.last().map(|last| (last.loss, last.count, last.gradient_norm));
        let reported = (report.loss, report.count, report.gradient_norm);
        assert!(last.is_none_or(|last| last == reported) && last.is_some() == report.loss.is_finite());
        assert_eq!(replica.is_synchronized(), ends || (step + 1).is_multiple_of(EVERY));
        assert_eq!(report.known.last().is_some_and(|last| last.step == step), replica.is_synchronized());
        known.extend(report.known);
    }
    assert!(known.iter().map(|step| step.step).eq(steps), "{known:?}");
    Run { values: bits(replica), known }
}

/// The same computation by a replica whose steps end with their updates: each gradient is that of the values
/// of one step before, except for the first one after all updates were applied.
fn reference(config: &Config, (optimizer, settings, _): &Combination) -> Run {
    let config = Config { sync: "every-step".parse().unwrap(), ..config.clone() };
    let mut replica = replica(Arc::new(Group::alone()), &config, optimizer.name, settings.clone());
    let (sampler, mut known, mut before) = (sampler(), Vec::new(), None);
    for step in 0..STEPS {
        let now = replica.values().unwrap().to_vec();
        let values = before.take().unwrap_or_else(|| now.clone());
        for shard in 0..SHARDS {
            pass(&mut replica, &values, &samples(&sampler, step, shard));
        }
        known.extend(replica.step(rate(step)).unwrap().known);
        before = (!(step + 1).is_multiple_of(EVERY)).then_some(now);
    }
    Run { values: bits(&mut replica), known }
}

fn train_on(world: usize, config: &Config, (optimizer, settings, _): &Combination) -> Run {
    let mut runs = threads::spawn(world, |group| {
        train(&mut replica(Arc::new(group), config, optimizer.name, settings.clone()), 0..STEPS)
    })
    .unwrap();
    assert!(runs.iter().all(|run| *run == runs[0]), "{world} ranks");
    runs.remove(0)
}

/// Combinations that permit updates that are one step late.
fn possible() -> Vec<Combination> {
    let keeps_nothing = |(.., reduction): &Combination| !reduction.keeps_state();
    combinations().into_iter().filter(keeps_nothing).collect()
}

#[test]
fn the_bits_of_the_reference_on_any_number_of_ranks_with_any_buckets() {
    let large = BucketCaps::of_mib(25.0);
    let small = BucketCaps { first: 4 * WIDTH, other: 8 * WIDTH };
    for (n, combination) in possible().iter().enumerate() {
        let (.., reduction) = combination;
        let transforms = if n % 3 > 0 { clip(2.0) } else { Vec::new() };
        let noise_scale = n % 3 == 2 && reduction.is_sum();
        let all = Config { transforms, noise_scale, reduction: reduction.clone(), ..config() };
        let expected = reference(&all, combination);
        assert_eq!(expected.known[3].gradient_norm.is_some(), n % 3 > 0);
        let jobs = [
            (1, large, true),
            (3, TINY, true),
            (4, small, false),
            (2, small, true),
            (5, large, true),
            (9, small, true),
        ];
        for (world, caps, forward_overlap) in selected(3, jobs) {
            let config = Config { caps: Some(caps), forward_overlap, verify_every: 3, ..all.clone() };
            let run = train_on(world, &config, combination);
            assert!(run == expected, "{combination:?}, {world} ranks");
        }
    }
}

#[test]
fn unequal_shares_and_servers_do_not_change_the_bits() {
    let combination = &possible()[0];
    let all = Config { transforms: clip(2.0), caps: Some(TINY), ..config() };
    let expected = reference(&all, combination);
    for shares in [vec![3.0, 1.0], vec![0.0, 3.0, 1.0], vec![1.0, 0.0, 2.0, 1.0, 1.0]] {
        let config = Config { shares: Some(shares.clone()), ..all.clone() };
        assert!(train_on(shares.len(), &config, combination) == expected, "{shares:?}");
    }
    for (workers, servers) in [(2, 1), (3, 2)] {
        let runs = threads::spawn(workers + servers, |group| {
            let is_server = group.rank().0 >= workers;
            let group = Arc::new(if is_server { group.into_server() } else { group });
            let (optimizer, settings, _) = combination;
            let run = train(&mut replica(group, &all, optimizer.name, settings.clone()), 0..STEPS);
            (!is_server).then_some(run)
        });
        for run in runs.unwrap().into_iter().flatten() {
            assert!(run == expected, "{workers} workers, {servers} servers");
        }
    }
}

/// Rank 1 begins each step only when rank 0 has completed the backward pass of the next one. So the
/// collectives of a step, which need rank 1, are still in flight while rank 0 computes a whole step. If rank
/// 0 waited for them this would never end.
#[test]
fn a_rank_computes_a_whole_step_while_the_gradient_of_the_one_before_is_on_its_way() {
    // In the first steps the ranks measure, and wait for each other.
    let (measuring, end) = (14, 22_usize);
    let (through, begin) = channel();
    let begin = Mutex::new(begin);
    let values = threads::spawn(2, |group| {
        let (rank, through) = (group.rank().0, through.clone());
        let config =
            Config { shards: Some(2), caps: Some(TINY), verify_every: 0, backup_every: 0, ..config() };
        let mut replica = replica(Arc::new(group), &config, "adamw", Settings::default());
        for step in 0..end {
            if rank == 1 && (measuring..end - 1).contains(&step) {
                let of = begin.lock().unwrap().recv_timeout(Duration::from_secs(60));
                assert_eq!(of, Ok(step + 1), "rank 0 waits in step {} for the gradient of {step}", step + 1);
            }
            run_shard(&mut replica, &[2 * step + rank]);
            if rank == 0 && step > measuring {
                assert!(!replica.is_synchronized());
                through.send(step).unwrap();
            }
            if step + 1 == end {
                replica.end_round();
            }
            let report = replica.step(0.05).unwrap();
            let before = report.known.first().map(|known| known.step as usize + 1);
            assert_eq!(before, (step > 0).then_some(step));
        }
        replica.values().unwrap().to_vec()
    })
    .unwrap();
    assert_eq!(values[0], values[1]);
}

#[test]
fn a_run_that_is_resumed_goes_on_in_the_same_bits() {
    let reduction = reduction::named("bf16", &Settings::default()).unwrap();
    let config = Config { reduction, noise_scale: false, transforms: clip(2.0), ..config() };
    let adamw = |group: Group| replica(Arc::new(group), &config, "adamw", Settings::default());
    // After the first cut all updates are applied because of the cut, after the second one because they are
    // due.
    let mut whole = adamw(Group::alone());
    let whole = [train(&mut whole, 0..7), train(&mut whole, 7..10), train(&mut whole, 10..18)];
    for (cut, writers, readers) in [(7, 3, 2), (10, 2, 4), (10, 1, 3), (7, 5, 1)] {
        let before = |replica: &mut Replica| {
            train(replica, 0..7);
            if cut == 10 {
                train(replica, 7..10);
            }
        };
        let after = |replica: &mut Replica| {
            if cut == 7 {
                train(replica, 7..10);
            }
            train(replica, 10..18)
        };
        let resumed = cut_and_resume(cut, [writers, readers], adamw, before, after);
        let same = resumed.iter().all(|run| *run == whole[2]);
        assert!(same, "cut after {cut}, {writers} and then {readers} ranks");
    }
}

#[test]
fn a_checkpoint_that_would_lose_a_gradient_is_refused() {
    let mut replica = replica(Arc::new(Group::alone()), &config(), "sgd", Settings::default());
    let folder = tempfile::tempdir().unwrap();
    let step = |replica: &mut Replica| {
        (0..SHARDS).for_each(|shard| run_shard(replica, &[shard]));
        replica.step(0.05).unwrap();
    };
    (0..2).for_each(|_| step(&mut replica));
    let text = "while the gradient of step 1 is on its way; call `Replica::end_round` before that step";
    let save = |replica: &mut Replica| {
        checkpoint::save(folder.path(), replica, &common::checkpoints::at(replica.steps()))
    };
    let error = save(&mut replica).unwrap_err().to_string();
    assert!(error.contains(text), "{error}");
    replica.end_round();
    step(&mut replica);
    let path = save(&mut replica).unwrap();
    step(&mut replica);
    let error = checkpoint::load(&path, &mut replica).unwrap_err().to_string();
    assert!(error.contains("while the gradient of step 3 is on its way"), "{error}");
}

#[test]
fn errors_of_a_step_are_reported_when_it_ends() {
    let errors = |disturb: fn(&mut Replica, u64) -> f64| {
        threads::spawn(2, |group| {
            let mut replica = replica(Arc::new(group), &config(), "sgd", Settings::default());
            for step in 0..4 {
                let rate = disturb(&mut replica, step);
                for shard in replica.shards().skip(usize::from(rate.is_nan())) {
                    run_shard(&mut replica, &[shard, 5 + shard]);
                }
                let before = replica.values().unwrap().to_vec();
                if let Err(error) = replica.step(if rate.is_nan() { 0.05 } else { rate }) {
                    assert_eq!(before, replica.values().unwrap(), "no parameter has changed");
                    return (step, error);
                }
            }
            panic!("nobody was told")
        })
        .unwrap()
    };
    let rates =
        errors(|replica, step| if step == 1 { 0.05 + 0.01 * replica.group().rank().0 as f64 } else { 0.05 });
    for (step, error) in rates {
        assert!(matches!(error, Error::SettingsDiffer { .. }) && step == 2, "{error}");
        assert!(error.to_string().contains("the learning rate of step 1 is 0.05 on rank 0"), "{error}");
    }
    // Rank 1's first shard is the job's third.
    let losses = errors(|replica, step| match (step, replica.group().rank().0) {
        (1, 1) => {
            replica.begin_shard(f64::NAN, 1.0).unwrap().finish().unwrap();
            f64::NAN
        }
        _ => 0.05,
    });
    for (step, error) in losses {
        let text = error.to_string();
        assert!(matches!(error, Error::LossNotFinite { step: 1, .. }) && step == 2, "{text}");
        assert!(text.contains("shard 2") && text.contains("rank 1"), "{text}");
    }
}
