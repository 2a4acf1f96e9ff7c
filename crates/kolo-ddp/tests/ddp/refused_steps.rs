//! Refused steps, or steps without some parameters: a loss or a gradient that is not finite, a loss that
//! comes from no parameter, parameters that no shard uses.

use std::sync::Arc;

use crate::common::{WIDTH, bits, clip, lively, noise, pass};
use kolo_comm::{Group, threads};
use kolo_ddp::optimizer::{self, OPTIMIZERS, Settings};
use kolo_ddp::{BLOCK, BucketCaps, Config, Error, Kind, ParamSpec, Replica, SpanId, StepReport, Warning};

const SHARDS: usize = 4;
/// The second tensor is cut into several buckets.
const LENS: [usize; 3] = [WIDTH, 2 * BLOCK + 5, 40];

fn config() -> Config {
    Config { shards: Some(SHARDS), caps: Some(BucketCaps::of_mib(0.01)), ..Config::default() }
}

fn replica(group: Group, config: &Config, optimizer: &str, settings: &Settings) -> Replica {
    let spec = |(n, len): (usize, &usize)| {
        ParamSpec::new(format!("p{n}"), vec![*len], Kind::Parameter { decay: true })
    };
    let values = (0..LENS.iter().sum()).map(|i| noise(1, i)).collect();
    let optimizer = optimizer::named(optimizer, settings).unwrap();
    Replica::new(Arc::new(group), LENS.iter().enumerate().map(spec).collect(), values, config, optimizer)
        .unwrap()
}

/// A step with these numbers of uses of each parameter, and in some shard this loss and this gradient.
fn step(replica: &mut Replica, uses: [usize; 3], wrong: (usize, f64, f32)) -> Result<StepReport, Error> {
    let number = replica.steps() as usize;
    for shard in replica.shards() {
        let is_wrong = shard == wrong.0;
        let mut pass = replica.begin_shard(if is_wrong { wrong.1 } else { 1.0 }, 2.0)?;
        for (n, len) in LENS.into_iter().enumerate().rev() {
            for time in 0..uses[n] {
                let mut gradient: Vec<f32> =
                    (0..len).map(|i| noise(number * 8 + shard + 3 * time, i)).collect();
                if is_wrong && n == 1 {
                    gradient[BLOCK + 1] += wrong.2;
                }
                pass.ready(SpanId(n), &gradient);
            }
        }
        pass.finish()?;
    }
    replica.step(0.01)
}

const NOTHING_WRONG: (usize, f64, f32) = (usize::MAX, 0.0, 0.0);

/// Returns the error of all of three ranks in the third step, in which something is wrong and nothing
/// changes.
fn all_errors(config: &Config, uses: [usize; 3], wrong: (usize, f64, f32)) -> Error {
    let mut errors = threads::spawn(3, |group| {
        let mut replica = replica(group, config, "adamw", &Settings::default());
        for _ in 0..2 {
            step(&mut replica, [1; 3], NOTHING_WRONG).unwrap();
        }
        let before = replica.values().unwrap().to_vec();
        let error = step(&mut replica, uses, wrong).unwrap_err();
        assert_eq!(replica.steps(), 2);
        assert!(replica.values().unwrap() == before, "no parameter changes");
        error
    })
    .unwrap();
    let messages: Vec<String> = errors.iter().map(Error::to_string).collect();
    assert!(messages.iter().all(|message| *message == messages[0]), "{messages:?}");
    errors.remove(0)
}

#[test]
fn a_loss_that_is_not_finite_is_reported_with_step_shard_and_rank() {
    for (shard, rank, loss) in [(0, 0, f64::NAN), (3, 2, f64::INFINITY), (1, 1, f64::NEG_INFINITY)] {
        let error = all_errors(&config(), [1; 3], (shard, loss, 0.0));
        assert!(
            matches!(&error, Error::LossNotFinite { step: 2, shards, .. } if shards.len() == 1),
            "{error}"
        );
        let text = format!("the loss of step 2 is {loss} in shard {shard} (rank {rank})");
        assert!(error.to_string().contains(&text) && error.to_string().contains("learning rate"), "{error}");
    }
}

#[test]
fn losses_whose_sum_is_too_large_are_reported() {
    let errors = threads::spawn(2, |group| {
        let mut replica = replica(group, &config(), "sgd", &Settings::default());
        for _ in replica.shards() {
            pass(&mut replica, 1e308, 1.0, [(0, [1.0; WIDTH])]).unwrap();
        }
        replica.step(0.1).unwrap_err().to_string()
    });
    assert!(errors.unwrap().iter().all(|error| error.contains("inf, the sum of finite losses")));
}

#[test]
fn a_gradient_that_is_not_finite_is_reported_also_if_its_norm_is_needed() {
    for transforms in [Vec::new(), clip(1.0)] {
        for wrong in [f32::NAN, f32::INFINITY] {
            let error =
                all_errors(&Config { transforms: transforms.clone(), ..config() }, [1; 3], (1, 1.0, wrong));
            assert!(matches!(&error, Error::GradientNotFinite { step: 2, .. }), "{error}");
            let text = format!("the gradient of `p1` in step 2 is {wrong} in shard 1 (rank 1)");
            assert!(error.to_string().contains(&text), "{error}");
        }
    }
}

#[test]
fn a_loss_that_comes_from_no_parameter_is_reported() {
    let error = all_errors(&config(), [0; 3], NOTHING_WRONG);
    assert!(matches!(error, Error::NoGradient { step: 2 }), "{error}");
    assert!(error.to_string().contains("`ddp.model()`") && error.to_string().contains("clone"), "{error}");
}

/// The second parameter is used in some steps only, and the third never: all in the same bits for any number
/// of ranks and any buckets, with reductions that overlap with the next forward pass or not.
#[test]
fn a_parameter_that_no_shard_uses_stays_as_it_is() {
    let uses = |step: u64| [1, [1, 0, 2, 0, 0, 1][step as usize % 6], 0];
    for optimizer in OPTIMIZERS {
        let train = |group: Group, caps: BucketCaps, forward_overlap: bool| {
            let config = Config { caps: Some(caps), forward_overlap, ..config() };
            let mut replica = replica(group, &config, optimizer.name, &lively(optimizer));
            let (mut warnings, rank) = (Vec::new(), replica.group().rank().0);
            for number in 0..18 {
                let span = |replica: &mut Replica, n: usize| replica.latest(SpanId(n)).to_vec();
                let before = [1, 2].map(|n| span(&mut replica, n));
                let report = step(&mut replica, uses(number), NOTHING_WRONG).unwrap();
                warnings.extend(report.warnings);
                let changed = [1, 2].map(|n| span(&mut replica, n) != before[n - 1]);
                assert_eq!(changed, [uses(number)[1] > 0, false], "step {number}, {}", optimizer.name);
            }
            let warnings: Vec<String> = warnings.iter().map(Warning::to_string).collect();
            let expected =
                ["parameter `p2` had no gradient in step 0", "parameter `p1` had no gradient in step 1"];
            let expected = if rank == 0 { &expected[..] } else { &[] };
            assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
            assert!(
                warnings.iter().zip(expected).all(|(warnings, text)| warnings.contains(text)),
                "{warnings:?}"
            );
            bits(&mut replica)
        };
        let expected = train(Group::alone(), BucketCaps::of_mib(25.0), true);
        for (world, mib, overlap) in [(1, 0.01, false), (2, 0.01, true), (3, 0.07, true), (5, 0.01, false)] {
            for bits in threads::spawn(world, |group| train(group, BucketCaps::of_mib(mib), overlap)).unwrap()
            {
                assert!(bits == expected, "{world} ranks, {}", optimizer.name);
            }
        }
    }
}

/// The optimizer's state of an unused parameter stays, too. When used again, it continues as if the steps in
/// between had not been, except for counts of steps.
#[test]
fn the_state_of_an_unused_parameter_stays_as_it_is() {
    let run = |steps: &[usize]| {
        let settings = Settings::default().with("momentum", 0.9).with("weight_decay", 0.1);
        let mut replica = replica(Group::alone(), &config(), "sgd", &settings);
        for &used in steps {
            for shard in replica.shards() {
                let third = (2, (0..LENS[2]).map(|i| noise(used * 8 + shard, i)).collect());
                let gradients = [(0, vec![1.0; WIDTH]), third].into_iter().take(1 + used.min(1));
                pass(&mut replica, 1.0, 1.0, gradients).unwrap();
            }
            replica.step(0.1).unwrap();
        }
        replica.latest(SpanId(2)).to_vec()
    };
    assert_eq!(run(&[1, 2, 3]), run(&[1, 0, 2, 0, 0, 3]));
}
