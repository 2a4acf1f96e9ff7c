//! Values of running statistics, from their equations in double precision.

use burn::nn::{BatchNorm, BatchNormConfig};

use super::*;

const CHANNELS: usize = 2;
/// Elements that a sample has of each channel.
const ELEMENTS: usize = 5;
/// Share of a shard's moment in the running one.
const MOMENTUM: f64 = 0.3;
const STEPS: usize = 3;
const SHARDS: usize = 4;

/// Running mean of each channel, then running variance of each.
type Running = [f64; 2 * CHANNELS];

/// Number of samples of a shard in a step, which differ.
fn samples(step: usize, shard: usize) -> usize {
    [3, 1, 4, 2][shard] + step
}

fn pixel(step: usize, shard: usize, index: usize) -> f32 {
    let channel = index / ELEMENTS % CHANNELS;
    noise(step * SHARDS + shard, index) * (1.0 + shard as f32) + (channel + step) as f32
}

/// Returns mean and variance (over n) of each channel in a shard's batch.
fn moments(step: usize, shard: usize) -> Running {
    let mut found = [0.0; 2 * CHANNELS];
    for channel in 0..CHANNELS {
        let all = 0..samples(step, shard) * CHANNELS * ELEMENTS;
        let own: Vec<f64> = all
            .filter(|index| index / ELEMENTS % CHANNELS == channel)
            .map(|index| f64::from(pixel(step, shard, index)))
            .collect();
        let mean = own.iter().sum::<f64>() / own.len() as f64;
        let variance = own.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / own.len() as f64;
        (found[channel], found[CHANNELS + channel]) = (mean, variance);
    }
    found
}

/// Moves running statistics toward the moments of a shard.
fn moved(running: Running, step: usize, shard: usize) -> Running {
    let moments = moments(step, shard);
    std::array::from_fn(|i| (1.0 - MOMENTUM) * running[i] + MOMENTUM * moments[i])
}

/// Local: each shard of a rank moves what the one before it has left, whatever its number of samples.
fn local(shards: std::ops::Range<usize>) -> Running {
    let passes = (0..STEPS).flat_map(|step| shards.clone().map(move |shard| (step, shard)));
    passes.fold([0.0, 0.0, 1.0, 1.0], |running, (step, shard)| moved(running, step, shard))
}

/// Per shard: all shards of a step begin with the same, which moves by the mean over the samples.
fn per_shard() -> Running {
    (0..STEPS).fold([0.0, 0.0, 1.0, 1.0], |running, step| {
        let all = (0..SHARDS).map(|shard| (moved(running, step, shard), samples(step, shard) as f64));
        let count: f64 = (0..SHARDS).map(|shard| samples(step, shard) as f64).sum();
        all.fold([0.0; 2 * CHANNELS], |sum, (moved, own)| {
            std::array::from_fn(|i| sum[i] + moved[i] * own / count)
        })
    })
}

/// Trains one normalization. Returns the shards of this rank in a step, and its statistics after all steps.
fn trained(group: Group, statistics: Statistics) -> (std::ops::Range<usize>, Vec<f32>) {
    let device = device();
    let model: BatchNorm = BatchNormConfig::new(CHANNELS).with_momentum(MOMENTUM).init(&device);
    let config = Config { shards: Some(SHARDS), statistics, ..Config::default() };
    let mut ddp = Ddp::new(group, model, &config, sgd(&Settings::default())).unwrap();
    for step in 0..STEPS {
        for shard in ddp.shards() {
            let shape = [samples(step, shard), CHANNELS, ELEMENTS];
            let pixels: Vec<f32> =
                (0..shape.iter().product()).map(|index| pixel(step, shard, index)).collect();
            let x = Tensor::<3>::from_data(TensorData::new(pixels, shape), &device);
            let loss = ddp.model().forward(x).powi_scalar(2).sum();
            ddp.backward(Loss::sum(loss, shape[0])).unwrap();
        }
        ddp.step(0.01).unwrap();
    }
    let values = inventory_of::<BatchNorm>(ddp.model()).values;
    let of = |name: &str| {
        let span = ddp.layout().spans().iter().find(|span| span.spec.name.ends_with(name)).unwrap();
        assert_eq!(span.spec.kind, Kind::Statistic);
        values[span.range()].to_vec()
    };
    (ddp.shards(), [of("running_mean"), of("running_var")].concat())
}

fn assert_close(found: &[f32], expected: Running) {
    let is_close = |(found, expected): (&f32, &f64)| {
        (f64::from(*found) - expected).abs() <= 2e-6 * expected.abs().max(1.0)
    };
    assert!(
        found.len() == expected.len() && found.iter().zip(&expected).all(is_close),
        "{found:?} {expected:?}"
    );
}

#[test]
fn statistics_are_those_of_their_equations() {
    for world in [1, 2, 3, 4] {
        for (_, found) in threads::spawn(world, |group| trained(group, Statistics::PerShard)).unwrap() {
            assert_close(&found, per_shard());
        }
        let ranks = threads::spawn(world, |group| trained(group, Statistics::Local)).unwrap();
        let shards: Vec<usize> = ranks.iter().flat_map(|(shards, _)| shards.clone()).collect();
        assert_eq!(shards, (0..SHARDS).collect::<Vec<_>>());
        for (shards, found) in ranks {
            assert_close(&found, local(shards));
        }
    }
    // The order of a rank's shards matters, and so does which it has.
    assert_ne!(local(0..2), local(2..4));
    assert_ne!(local(0..SHARDS), per_shard());
}
