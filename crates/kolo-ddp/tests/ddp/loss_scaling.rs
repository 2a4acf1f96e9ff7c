//! Scaled losses that overflow: the step is skipped on all ranks and leaves no trace, in the same bits for
//! any number of ranks and any restart.

use std::ops::Range;
use std::sync::Arc;

use crate::common::checkpoints::{cut_and_resume, saved};
use crate::common::{
    self, Combination, NAMES, Pass, WIDTH, backward, bits, clip, combinations, lively, pass, refusal, specs,
};
use kolo_comm::{Group, threads};
use kolo_ddp::checkpoint;
use kolo_ddp::optimizer::{OPTIMIZERS, Optimizer};
use kolo_ddp::table::Entry;
use kolo_ddp::{BucketCaps, Config, Error, LossScale, LossScaling, Replica, SpanId, StepReport};

const SHARDS: usize = 4;
const STEPS: u64 = 12;
/// In this step and this shard the gradient is larger than usual.
const LARGE: (u64, usize) = (5, 2);
/// The largest number of `f16`.
const MOST: f32 = 65504.0;
/// Gradients of most steps are below 100, those of the large one below 1000: they overflow in `f16` at 1024;
/// at 512, the scale of the next step, nothing does.
const SCALING: LossScaling = LossScaling { initial: 512.0, growth: 2.0, backoff: 0.5, growth_interval: 4 };

fn config(scaled: bool, clip_norm: Option<f64>) -> Config {
    Config {
        shards: Some(SHARDS),
        caps: Some(BucketCaps { first: 4 * WIDTH, other: 8 * WIDTH }),
        transforms: clip_norm.map(clip).unwrap_or_default(),
        loss_scaling: scaled.then_some(SCALING),
        verify_every: 3,
        ..Config::default()
    }
}

fn replica(group: Group, config: &Config, optimizer: &Entry<dyn Optimizer>) -> Replica {
    replica_with(group, config, optimizer.build(&lively(optimizer)).unwrap())
}

fn replica_with(group: Group, config: &Config, optimizer: Box<dyn Optimizer>) -> Replica {
    let values = (0..NAMES.len() * WIDTH).map(|i| common::noise(1, i) * 0.5).collect();
    Replica::new(Arc::new(group), specs(), values, config, optimizer).unwrap()
}

/// A step whose gradients have the replica's scale, and overflow like those of `f16`.
fn step(replica: &mut Replica, number: u64, loss_of_shard_1: f64) -> Result<StepReport, Error> {
    let scale = replica.loss_scale();
    for shard in replica.shards() {
        let values: Vec<f32> = (0..NAMES.len()).flat_map(|id| replica.latest(SpanId(id)).to_vec()).collect();
        let samples = [number as usize * SHARDS + shard, 7 * shard];
        let Pass { mut loss, first, shared: [once, twice], last, mean } = backward(&values, &samples);
        let times = if (number, shard) == LARGE { 64.0 } else { 1.0 };
        let in_f16 = |gradient: &[f32]| -> Vec<f32> {
            let scaled = gradient.iter().map(|g| g * times * scale);
            scaled.map(|g| if g.abs() > MOST { f32::INFINITY.copysign(g) } else { g }).collect()
        };
        loss += if shard == 1 { loss_of_shard_1 } else { 0.0 };
        let gradients = [(3, last), (1, once), (1, twice), (0, first)];
        let scaled = gradients.iter().map(|(span, gradient)| (*span, in_f16(gradient)));
        pass(replica, loss, samples.len() as f64, scaled.chain([(4, mean)]))?;
    }
    replica.step(0.01)
}

/// Runs these steps; returns the scale of each, and true for the skipped ones.
fn train(replica: &mut Replica, steps: Range<u64>) -> Vec<(f32, bool)> {
    let reports = |number| {
        let before = bits(replica);
        let report = step(replica, number, 0.0).unwrap();
        assert_eq!(report.skipped, bits(replica) == before, "step {number}");
        assert!(report.loss.is_finite() && report.gradient_norm.is_none_or(f64::is_finite));
        (report.loss_scale.unwrap_or(1.0), report.skipped)
    };
    steps.map(reports).collect()
}

/// Trains without scaling and without the step that overflows.
fn without_the_large_step(optimizer: &Entry<dyn Optimizer>, clip_norm: Option<f64>) -> Vec<u32> {
    let mut replica = replica(Group::alone(), &config(false, clip_norm), optimizer);
    for number in (0..STEPS).filter(|number| *number != LARGE.0) {
        assert_eq!(step(&mut replica, number, 0.0).unwrap().loss_scale, None);
    }
    bits(&mut replica)
}

#[test]
fn a_step_that_overflows_is_skipped_on_all_ranks_as_if_it_had_never_been() {
    for optimizer in OPTIMIZERS {
        for clip_norm in [None, Some(1.5)] {
            let expected = without_the_large_step(optimizer, clip_norm);
            for world in [1, 2, 3, 5] {
                let ranks = threads::spawn(world, |group| {
                    let mut replica = replica(group, &config(true, clip_norm), optimizer);
                    let reports = train(&mut replica, 0..STEPS);
                    (reports, replica.loss_scaling(), bits(&mut replica))
                })
                .unwrap();
                for (reports, end, bits) in ranks {
                    let scales: Vec<f32> = reports.iter().map(|(scale, _)| *scale).collect();
                    let before = [512.0, 512.0, 512.0, 512.0, 1024.0, 1024.0];
                    assert_eq!(scales, [&before[..], &[512.0, 512.0, 512.0, 512.0, 1024.0, 1024.0]].concat());
                    let skipped = (0..).zip(&reports).filter(|(_, (_, skipped))| *skipped);
                    assert_eq!(skipped.map(|(number, _)| number).collect::<Vec<u64>>(), [LARGE.0]);
                    assert_eq!(end, LossScale { scale: 1024.0, clean_steps: 2, skipped_steps: 1 });
                    assert!(bits == expected, "{}, {clip_norm:?}, {world} ranks", optimizer.name);
                }
            }
        }
    }
}

/// The norms of a step are divided by its scale, and a skipped step is not measured.
#[test]
fn the_noise_scale_is_that_of_gradients_without_their_scale() {
    let sgd = kolo_ddp::optimizer::find("sgd").unwrap();
    let run = |group: Group, scaled: bool, numbers: &[u64]| {
        let mut replica = replica(group, &Config { noise_scale: true, ..config(scaled, None) }, sgd);
        let measured = numbers.iter().map(|number| {
            let reports = step(&mut replica, *number, 0.0).unwrap().noise_scale.unwrap();
            assert_eq!(replica.noise_scale().unwrap(), Some(reports));
            (*number, [reports.gradient_squared(), reports.noise_trace()].map(f64::to_bits))
        });
        measured.collect::<Vec<(u64, [u64; 2])>>()
    };
    let steps: Vec<u64> = (0..STEPS).filter(|number| *number != LARGE.0).collect();
    let mut expected = run(Group::alone(), false, &steps);
    expected.insert(LARGE.0 as usize, (LARGE.0, expected[LARGE.0 as usize - 1].1));
    let all: Vec<u64> = (0..STEPS).collect();
    for world in [1, 2, 3, 5] {
        for measured in threads::spawn(world, |group| run(group, true, &all)).unwrap() {
            assert!(measured == expected, "{world} ranks: {measured:?} {expected:?}");
        }
    }
}

/// Runs steps of a model whose gradients do not depend on its values, the last of which ends a round of
/// islands. In the large step an element of one shard overflows, unless the shard is in `without`: those
/// have no sample in that step.
fn plain_steps(
    replica: &mut Replica,
    numbers: impl IntoIterator<Item = u64>,
    without: Range<usize>,
) -> Vec<bool> {
    let mut numbers = numbers.into_iter().peekable();
    let mut skipped = Vec::new();
    while let Some(number) = numbers.next() {
        if numbers.peek().is_none() {
            replica.end_round();
        }
        for shard in replica.shards() {
            if number == LARGE.0 && without.contains(&shard) {
                replica.begin_shard(0.0, 0.0).unwrap().finish().unwrap();
                continue;
            }
            let scale = replica.loss_scale();
            let gradient = |id| {
                let value = |i| common::noise(number as usize * SHARDS + shard + 7 * id, i) * scale;
                let mut gradient: Vec<f32> = (0..WIDTH).map(value).collect();
                if (number, shard, id) == (LARGE.0, LARGE.1, 1) {
                    gradient[WIDTH / 3] = f32::INFINITY;
                }
                (id, gradient)
            };
            let mean = (4, vec![0.1 * shard as f32; WIDTH]);
            pass(replica, 1.0, 1.0 + shard as f64, [3, 1, 0].map(gradient).into_iter().chain([mean]))
                .unwrap();
        }
        skipped.push(replica.step(0.01).unwrap().skipped);
    }
    skipped
}

/// No compression hides an overflow, or reports it to some ranks only, or keeps a part of it.
#[test]
fn every_reduction_skips_a_step_as_if_it_had_never_been() {
    let steps = |skip: bool| (0..STEPS).filter(move |number| !(skip && *number == LARGE.0));
    for (optimizer, settings, reduction) in combinations() {
        let run = |group: Group, scaled: bool, caps: BucketCaps| {
            let reduction = reduction.clone();
            let config = Config { reduction, caps: Some(caps), ..config(scaled, None) };
            let mut replica = replica_with(group, &config, optimizer.build(&settings).unwrap());
            let skipped = plain_steps(&mut replica, steps(!scaled), 0..0);
            assert_eq!(replica.loss_scaling().skipped_steps, u64::from(scaled));
            (skipped, bits(&mut replica))
        };
        // Values in f16 on the wire are rounded relative to its smallest number, above which the scale lifts
        // them.
        let small = BucketCaps { first: 4 * WIDTH, other: 4 * WIDTH };
        let (_, expected) = run(Group::alone(), reduction.name() == "f16", BucketCaps::of_mib(25.0));
        for (world, caps) in [(1, small), (2, BucketCaps::of_mib(25.0)), (3, small), (4, small), (5, small)] {
            for (skipped, bits) in threads::spawn(world, |group| run(group, true, caps)).unwrap() {
                let case = format!("{}, {reduction:?}, {world} ranks", optimizer.name);
                assert!((0..STEPS).zip(&skipped).all(|(step, is)| *is == (step == LARGE.0)), "{case}");
                assert!(bits == expected, "{case}");
            }
        }
    }
}

/// The kept state has no scale, so it is also right for a job that continues without one.
#[test]
fn what_every_reduction_keeps_is_resumed_around_a_step_that_is_skipped() {
    let keeps = |(.., reduction): &Combination| reduction.keeps_state();
    for (optimizer, settings, reduction) in combinations().into_iter().filter(keeps) {
        let new = |group: Group, scaled: bool| {
            let config = Config { reduction: reduction.clone(), ..config(scaled, None) };
            replica_with(group, &config, optimizer.build(&settings).unwrap())
        };
        let without = |steps: Range<u64>| steps.filter(|number| *number != LARGE.0);
        let mut whole = new(Group::alone(), false);
        plain_steps(&mut whole, without(0..STEPS), 0..0);
        let expected = bits(&mut whole);
        for cut in [LARGE.0, LARGE.0 + 1] {
            let before = |replica: &mut Replica| drop(plain_steps(replica, 0..cut, 0..0));
            let folder = saved(cut, 3, |group| new(group, true), before);
            for scaled in [true, false] {
                let resumed = threads::spawn(2, |group| {
                    let mut replica = new(group, scaled);
                    checkpoint::load(&checkpoint::path(folder.path(), cut), &mut replica).unwrap();
                    match scaled {
                        true => plain_steps(&mut replica, cut..STEPS, 0..0),
                        false => plain_steps(&mut replica, without(cut..STEPS), 0..0),
                    };
                    bits(&mut replica)
                });
                let case = format!("{}, {reduction:?}, cut after {cut}, scaled: {scaled}", optimizer.name);
                assert!(resumed.unwrap().iter().all(|bits| *bits == expected), "{case}");
            }
        }
    }
}

/// Each island has a scale of its own.
#[test]
fn an_island_that_overflows_skips_its_step_alone() {
    let sgd = kolo_ddp::optimizer::find("sgd").unwrap();
    // Modes whose rounds end at the cuts, and elsewhere.
    let parts = [0..4, 4..8, 8..STEPS];
    for (sync, islands) in [
        ("local:H=4", 4),
        ("local:H=3,restart_inner", 2),
        ("diloco:H=4", 2),
        ("diloco:H=4,restart_inner", 4),
        ("post-local:H=3,T=4", 2),
    ] {
        let new = |group: Group, scaled: bool| {
            let (sync, islands) = (sync.parse().unwrap(), Some(islands));
            replica(group, &Config { sync, islands, ..config(scaled, None) }, sgd)
        };
        let size = SHARDS / islands;
        let overflowing = LARGE.1 / size * size..(LARGE.1 / size + 1) * size;
        let mut whole = new(Group::alone(), false);
        parts.iter().for_each(|part| {
            plain_steps(&mut whole, part.clone(), overflowing.clone());
        });
        let expected = bits(&mut whole);
        for world in 1..=5 {
            let ends = threads::spawn(world, |group| {
                let mut replica = new(group, true);
                for part in &parts {
                    let skipped = plain_steps(&mut replica, part.clone(), 0..0);
                    // One rank sees all islands.
                    assert!(world > 1 || !skipped.contains(&true));
                }
                (replica.skipped_steps(), bits(&mut replica))
            });
            let end = (1, expected.clone());
            assert!(
                ends.unwrap().iter().all(|found| *found == end),
                "{sync}, {islands} islands, {world} ranks"
            );
        }
        for cut in 1..parts.len() {
            let step = parts[cut].start;
            let run = |replica: &mut Replica, parts: &[Range<u64>]| {
                parts.iter().for_each(|part| drop(plain_steps(replica, part.clone(), 0..0)));
            };
            let before = |replica: &mut Replica| run(replica, &parts[..cut]);
            let ends = cut_and_resume(
                step,
                [3, 2],
                |group| new(group, true),
                before,
                |replica| {
                    assert_eq!(replica.skipped_steps(), u64::from(step > LARGE.0));
                    run(replica, &parts[cut..]);
                    (replica.skipped_steps(), replica.loss_scaling().scale, bits(replica))
                },
            );
            for (skipped, scale, bits) in &ends {
                assert_eq!(*skipped, 1, "{sync}, {islands} islands, cut after {step}");
                assert!(*bits == expected, "{sync}, {islands} islands, cut after {step}");
                // Rank 0 has the first island, whose scale has grown every four steps, rank 1 the one that
                // has halved its scale.
                assert!([4096.0, 1024.0].contains(scale), "{sync}: {scale}");
            }
            assert!(ends[0].1 > ends[1].1, "{sync}, {islands} islands: {ends:?}");
        }
    }
}

/// Before the first round of `post-local` all shards are one island.
#[test]
fn islands_that_still_synchronize_every_step_skip_it_together() {
    let sgd = kolo_ddp::optimizer::find("sgd").unwrap();
    let new = |group: Group, scaled: bool, sync: &str| {
        let (sync, islands) = (sync.parse().unwrap(), Some(2));
        replica(group, &Config { sync, islands, ..config(scaled, None) }, sgd)
    };
    let mut whole = new(Group::alone(), false, "post-local:H=2,T=7");
    plain_steps(&mut whole, (0..STEPS).filter(|number| *number != LARGE.0), 0..0);
    let expected = bits(&mut whole);
    for rank in threads::spawn(3, |group| {
        let mut replica = new(group, true, "post-local:H=2,T=8");
        let skipped = plain_steps(&mut replica, 0..STEPS, 0..0);
        assert!((0..STEPS).zip(skipped).all(|(step, is)| is == (step == LARGE.0)));
        (replica.skipped_steps(), bits(&mut replica))
    })
    .unwrap()
    {
        assert!(rank == (1, expected.clone()));
    }
}

#[test]
fn a_run_that_is_resumed_has_the_same_bits_and_the_same_scale() {
    let adamw = kolo_ddp::optimizer::find("adamw").unwrap();
    let expected = without_the_large_step(adamw, None);
    for cut in [2, 4, 5, 6, 9] {
        let new = |group| replica(group, &config(true, None), adamw);
        let folder = saved(cut, 2, new, |replica| drop(train(replica, 0..cut)));
        let path = checkpoint::path(folder.path(), cut);
        threads::spawn(3, |group| {
            let mut replica = new(group);
            checkpoint::load(&path, &mut replica).unwrap();
            train(&mut replica, cut..STEPS);
            let end = LossScale { scale: 1024.0, clean_steps: 2, skipped_steps: 1 };
            assert_eq!(replica.loss_scaling(), end, "cut after {cut}");
            assert!(bits(&mut replica) == expected, "cut after {cut}");
        })
        .unwrap();
        // The steps of an unscaled job that continues are counted as the optimizer has counted, too.
        let mut unscaled = replica(Group::alone(), &config(false, None), adamw);
        checkpoint::load(&path, &mut unscaled).unwrap();
        let rest = (cut..STEPS).filter(|number| *number != LARGE.0);
        rest.for_each(|number| drop(step(&mut unscaled, number, 0.0).unwrap()));
        assert!(bits(&mut unscaled) == expected, "cut after {cut}");
    }
}

/// A loss that is NaN is an overflow, too, until no scale can help.
#[test]
fn a_loss_that_overflows_once_is_skipped_and_one_that_always_does_is_an_error() {
    for loss in [f64::INFINITY, f64::NAN] {
        threads::spawn(3, |group| {
            let mut replica = replica(group, &config(true, Some(1.0)), &OPTIMIZERS[0]);
            train(&mut replica, 0..2);
            let before = bits(&mut replica);
            let report = step(&mut replica, 2, loss).unwrap();
            assert!(report.skipped && report.loss.to_bits() == loss.to_bits());
            assert_eq!(replica.last_step().unwrap().loss.to_bits(), loss.to_bits());
            assert!(bits(&mut replica) == before);
            assert!(!step(&mut replica, 3, 0.0).unwrap().skipped);
            let before = bits(&mut replica);
            let error = (0..100).find_map(|_| step(&mut replica, 4, loss).err()).unwrap();
            assert!(matches!(&error, Error::LossNotFinite { shards, .. } if shards.len() == 1), "{error}");
            // From 256 to 2⁻¹⁶.
            assert_eq!(replica.loss_scaling().skipped_steps, 1 + 24);
            assert!(bits(&mut replica) == before);
        })
        .unwrap();
    }
}

#[test]
fn a_gradient_that_overflows_at_every_scale_is_named() {
    let least = LossScaling { initial: 2f64.powi(-14), ..SCALING };
    for clip_norm in [None, Some(1.0)] {
        let config = Config { loss_scaling: Some(least), ..config(true, clip_norm) };
        threads::spawn(2, |group| {
            let mut replica = replica(group, &config, &OPTIMIZERS[0]);
            let wrong = |replica: &mut Replica| {
                for shard in replica.shards() {
                    let value = if shard == 3 { f32::NAN } else { 1.0 };
                    pass(replica, 1.0, 1.0, [(3, [value; WIDTH])])?;
                }
                replica.step(0.1)
            };
            assert!(wrong(&mut replica).unwrap().skipped && wrong(&mut replica).unwrap().skipped);
            let error = wrong(&mut replica).unwrap_err().to_string();
            assert!(error.contains("step 2") && error.contains("`last`"), "{error}");
        })
        .unwrap();
    }
}

#[test]
fn scaling_that_cannot_be_is_refused_before_the_first_step() {
    let shrinking = LossScaling { growth: 0.5, ..SCALING };
    let error = refusal(Group::alone(), &Config { loss_scaling: Some(shrinking), ..config(true, None) });
    assert!(error.contains("growth is 0.5"), "{error}");
    let errors = threads::spawn(3, |group| {
        let scaled = group.rank().0 != 1;
        refusal(group, &config(scaled, None))
    });
    for error in errors.unwrap() {
        assert!(error.contains("loss scaling is") && error.contains("none on rank 1"), "{error}");
    }
}
