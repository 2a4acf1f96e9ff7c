//! The gradient noise scale: right where it is known, in the same bits for any number of ranks and any
//! buckets, after a checkpoint and after deaths, and refused where it cannot be measured.

use std::ops::Range;
use std::sync::Arc;

use crate::common::checkpoints::at;
use crate::common::{pass, refusal, sgd};
use kolo_comm::{Group, threads};
use kolo_ddp::checkpoint;
use kolo_ddp::optimizer::Settings;
use kolo_ddp::reduction::{REDUCTIONS, Reducer};
use kolo_ddp::{BLOCK, BucketCaps, Config, Kind, NoiseScale, ParamSpec, Replica};

const SHARDS: usize = 4;
/// With small buckets the second tensor is cut into several; the last one is a running mean.
const LENS: [usize; 4] = [300, BLOCK + 500, 77, 40];
const TRAINED: usize = LENS[0] + LENS[1] + LENS[2];
/// A sample's gradient is MEAN ± DEVIATION in every element of every tensor, independently: |G|² = n·MEAN²
/// and tr(Σ) = n·DEVIATION² for n elements.
const MEAN: f32 = 0.37;
const DEVIATION: f32 = 1.3;

fn config(mib: f64) -> Config {
    let caps = Some(BucketCaps::of_mib(mib));
    Config { shards: Some(SHARDS), caps, noise_scale: true, ..Config::default() }
}

fn replica(group: Group, config: &Config) -> Replica {
    let spec = |(n, len): (usize, &usize)| {
        let kind = if n == 3 { Kind::Statistic } else { Kind::Parameter { decay: true } };
        ParamSpec::new(format!("p{n}"), vec![*len], kind)
    };
    let (specs, values) = (LENS.iter().enumerate().map(spec).collect(), vec![0.5; LENS.iter().sum()]);
    Replica::new(Arc::new(group), specs, values, config, sgd()).unwrap()
}

/// +1 or -1, at random.
fn sign(step: u64, shard: usize, sample: usize, index: usize) -> f32 {
    let x = (step as u32).wrapping_mul(0x9E37_79B1)
        ^ (shard as u32 * 64 + sample as u32).wrapping_mul(0x85EB_CA6B);
    let x = (x ^ x >> 15).wrapping_add(index as u32).wrapping_mul(0x2C1B_3C6D);
    let x = (x ^ x >> 12).wrapping_mul(0x297A_2D39);
    if (x ^ x >> 15) & 1 == 0 { 1.0 } else { -1.0 }
}

/// The sum over a shard's samples.
fn gradient(step: u64, shard: usize, samples: usize, tensor: usize) -> Vec<f32> {
    let first: usize = LENS[..tensor].iter().sum();
    let element = |i: usize| {
        let signs = (0..samples).map(|sample| sign(step, shard, sample, first + i));
        signs.map(|sign| MEAN + DEVIATION * sign).sum()
    };
    (0..LENS[tensor]).map(element).collect()
}

/// Runs steps whose shards have `samples(step, shard)` samples; the middle tensor is used `uses(step)`
/// times.
fn steps(
    replica: &mut Replica,
    steps: Range<u64>,
    samples: fn(u64, usize) -> usize,
    uses: fn(u64) -> usize,
) -> Vec<Option<NoiseScale>> {
    let step = |step| {
        for shard in replica.shards() {
            let samples = samples(step, shard);
            let gradients = (0..if samples > 0 { LENS.len() } else { 0 }).rev().flat_map(|tensor| {
                let gradient = gradient(step, shard, samples, tensor);
                // Its uses have parts with the same sum.
                let uses = if tensor == 1 { uses(step) } else { 1 };
                let part = gradient.iter().map(|g| g / uses as f32).collect::<Vec<f32>>();
                vec![(tensor, part); uses]
            });
            pass(replica, 1.0, samples as f64, gradients).unwrap();
        }
        replica.step(0.01).unwrap().noise_scale
    };
    steps.map(step).collect()
}

/// All different, one of them empty in every other step.
fn uneven(step: u64, shard: usize) -> usize {
    [3, 1, 2, 2 * (step as usize % 2)][(shard + step as usize) % SHARDS]
}

fn even(_: u64, _: usize) -> usize {
    2
}

fn bits(scales: &[Option<NoiseScale>]) -> Vec<[u64; 2]> {
    let known = scales.iter().map(|scales| scales.unwrap());
    known.map(|known| [known.gradient_squared(), known.noise_trace()].map(f64::to_bits)).collect()
}

#[test]
fn a_noise_scale_that_is_known_is_found() {
    let (mean, deviation) = (f64::from(MEAN), f64::from(DEVIATION));
    for samples in [even, uneven] {
        let mut replica = replica(Group::alone(), &config(25.0));
        let scales = steps(&mut replica, 0..100, samples, |_| 1);
        let known = scales.last().unwrap().unwrap();
        let close = |found: f64, expected: f64| {
            assert!((found / expected - 1.0).abs() < 0.03, "{found} {expected}");
        };
        close(known.gradient_squared(), TRAINED as f64 * mean.powi(2));
        close(known.noise_trace(), TRAINED as f64 * deviation.powi(2));
        let expected = (deviation / mean).powi(2);
        close(known.samples().unwrap(), expected);
        close(known.meaning(8.0).unwrap().share, 8.0 / expected);
    }
}

/// Also if a tensor is used several times, and if their number is unexpected.
#[test]
fn any_number_of_ranks_and_any_buckets_report_the_same_bits() {
    for uses in [|_| 1, |step| 1 + usize::from(step > 1) + usize::from(step == 4)] {
        let run = |group, config: &Config| {
            let mut replica = replica(group, config);
            let scales = steps(&mut replica, 0..8, uneven, uses);
            assert!(
                scales.windows(2).filter(|pair| pair[0] == pair[1]).count() <= 1,
                "all but a surprise count"
            );
            (bits(&scales), bits(&[replica.noise_scale().unwrap()]))
        };
        let expected = run(Group::alone(), &config(25.0));
        for (world, mib, forward_overlap) in
            [(1, 0.01, true), (2, 0.01, false), (3, 0.05, true), (4, 25.0, true), (6, 0.05, true)]
        {
            let config = Config { forward_overlap, ..config(mib) };
            for found in threads::spawn(world, |group| run(group, &config)).unwrap() {
                assert!(found == expected, "{world} ranks, buckets of {mib} MiB");
            }
        }
    }
}

#[test]
fn what_is_measured_changes_no_weight() {
    let run = |noise_scale| {
        let config = Config { noise_scale, ..config(0.05) };
        let mut replica = replica(Group::alone(), &config);
        let scales = steps(&mut replica, 0..3, uneven, |_| 1);
        assert_eq!(scales.iter().all(Option::is_some), noise_scale);
        assert_eq!(
            scales.iter().any(Option::is_some) || replica.noise_scale().unwrap().is_some(),
            noise_scale
        );
        replica.values().unwrap().to_vec()
    };
    assert!(run(true) == run(false));
}

#[test]
fn a_checkpoint_and_other_ranks_continue_in_the_same_bits() {
    let config = Config { elastic: true, ..config(0.05) };
    let mut whole = replica(Group::alone(), &config);
    let expected = bits(&steps(&mut whole, 0..6, uneven, |_| 1));

    let folder = tempfile::tempdir().unwrap();
    let path = threads::spawn(3, |group| {
        let mut replica = replica(group, &config);
        steps(&mut replica, 0..3, uneven, |_| 1);
        let first = replica.group().rank().0 == 0;
        let path = first.then(|| checkpoint::save(folder.path(), &mut replica, &at(3)).unwrap());
        // The others are gone; it continues alone.
        replica.regroup(Arc::new(Group::alone())).unwrap();
        assert_eq!(bits(&steps(&mut replica, 3..6, uneven, |_| 1)), expected[3..]);
        path
    });
    let path = path.unwrap().remove(0).unwrap();
    for resumed in threads::spawn(2, |group| {
        let mut replica = replica(group, &config);
        checkpoint::load(&path, &mut replica).unwrap();
        bits(&steps(&mut replica, 3..6, uneven, |_| 1))
    })
    .unwrap()
    {
        assert_eq!(resumed, expected[3..]);
    }
}

/// One rank has trained; the other joins and receives its state.
#[test]
fn a_newcomer_knows_what_the_others_know() {
    let config = Config { elastic: true, ..config(0.05) };
    let mut whole = replica(Group::alone(), &config);
    let expected = bits(&steps(&mut whole, 0..6, uneven, |_| 1));
    for scales in threads::spawn(2, |group| {
        let mut replica = match group.rank().0 {
            1 => {
                let mut alone = replica(Group::alone(), &config);
                steps(&mut alone, 0..3, uneven, |_| 1);
                alone.regroup(Arc::new(group)).unwrap();
                alone
            }
            _ => replica(group, &config),
        };
        bits(&steps(&mut replica, 3..6, uneven, |_| 1))
    })
    .unwrap()
    {
        assert_eq!(scales, expected[3..]);
    }
}

#[test]
fn what_cannot_be_measured_is_refused_at_the_start() {
    let error = refusal(Group::alone(), &Config { shards: Some(1), ..config(25.0) });
    assert!(error.contains("at least 2 shards; it has 1 (`Config::shards`)"), "{error}");
    for entry in REDUCTIONS {
        let reduction: Arc<dyn Reducer> = entry.build(&Settings::default()).unwrap().into();
        if !["sum", "bf16", "f16"].contains(&entry.name) {
            let error = refusal(Group::alone(), &Config { reduction, ..config(25.0) });
            assert!(error.contains(entry.name) && error.contains("take the reduction sum"), "{error}");
        }
    }
}
