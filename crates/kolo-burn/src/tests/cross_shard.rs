//! Normalization over the global batch: the gradients of the whole batch, with the same bits on any number of
//! ranks.

use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::{Device, Int, Tensor, TensorData};
use kolo_comm::{Group, threads, tree};
use kolo_ddp::cross_shard::CrossShardPass;
use kolo_ddp::optimizer::{self, Settings};
use kolo_ddp::{Config, Kind};

use super::residual_net::ResidualNet;
use super::{noise, velocity};
use crate::{BurnModel, Ddp, DropoutKey, Loss, sync_batch_norm};

fn plain() -> Device {
    Device::flex().autodiff()
}

fn ddp(group: Group, shards: usize, dropout: f64, device: &Device) -> Ddp<ResidualNet> {
    let model = ResidualNet::new(dropout, device);
    let config = Config { shards: Some(shards), verify_every: 2, ..Config::default() };
    let sgd = optimizer::named("sgd", &Settings::default().with("momentum", 0.9)).unwrap();
    Ddp::new(group, model, &config, sgd).unwrap()
}

fn batch(samples: &[usize], device: &Device) -> (Tensor<4>, Tensor<1, Int>) {
    let pixels: Vec<f32> =
        samples.iter().flat_map(|&s| (0..144).map(move |i| noise(s + 20, i) + s as f32 * 0.1)).collect();
    let labels: Vec<i32> = samples.iter().map(|s| (s % 10) as i32).collect();
    let labels = Tensor::from_data(TensorData::new(labels, [samples.len()]), device);
    (Tensor::from_data(TensorData::new(pixels, [samples.len(), 1, 12, 12]), device), labels)
}

fn loss(scores: Tensor<2>, labels: Tensor<1, Int>) -> Loss {
    let count = labels.dims()[0];
    Loss::mean(CrossEntropyLossConfig::new().init(&scores.device()).forward(scores, labels), count)
}

/// Runs one step on `samples` samples. A shard gets none if there are fewer samples than shards.
fn step(ddp: &mut Ddp<ResidualNet>, step: usize, samples: usize, shards: usize, device: &Device) {
    let of_shard = |shard| {
        let own: Vec<usize> = tree::share(samples, shards, kolo_comm::Rank(shard)).collect();
        (!own.is_empty()).then_some(own)
    };
    let inputs = ddp.shards().map(of_shard).collect();
    ddp.cross_shard_passes(inputs, |model: &BurnModel<ResidualNet>, samples: Vec<usize>, pass| {
        let (images, labels) = batch(&samples, device);
        let key = DropoutKey { seed: 5, epoch: 0, step, shard: pass.shard() };
        loss(model.forward_cross_shard(images, &key, pass), labels)
    })
    .unwrap();
    ddp.step(0.05).unwrap();
}

fn values(ddp: &Ddp<ResidualNet>) -> Vec<f32> {
    ddp.with_replica(|replica| replica.values().unwrap().to_vec())
}

fn relative_error(a: &[f32], b: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let error: f64 = a.iter().zip(b).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    (error / b.iter().map(|b| square(f64::from(*b))).sum::<f64>()).sqrt()
}

/// Compares with Burn's own batch normalization of the whole batch on one worker, with and without
/// checkpointing of the graph.
#[test]
fn gradients_and_statistics_are_those_of_the_whole_batch() {
    const SAMPLES: usize = 14;
    let all: Vec<usize> = (0..SAMPLES).collect();
    let mut whole = ddp(Group::alone(), 1, 0.0, &plain());
    let (images, labels) = batch(&all, &plain());
    whole.backward(loss(whole.model().forward(images), labels)).unwrap();
    whole.step(0.05).unwrap();
    let (gradient, after) = (velocity(&whole), values(&whole));
    for device in [plain(), plain().gradient_checkpointing()] {
        for (shards, world) in [(1, 1), (4, 1), (4, 3), (4, 4), (16, 2), (3, 5)] {
            let run = |group: Group| {
                let mut ddp = ddp(group, shards, 0.0, &device);
                step(&mut ddp, 0, SAMPLES, shards, &device);
                let (gradient, after) = (velocity(&ddp), values(&ddp));
                let spans = ddp.layout().spans().iter();
                let statistics = spans.filter(|span| span.spec.kind == Kind::Statistic);
                (gradient, after, statistics.map(|span| span.range()).collect::<Vec<_>>())
            };
            for (own, own_after, statistics) in threads::spawn(world, run).unwrap() {
                let error = relative_error(&own, &gradient);
                assert!(error < 1e-5, "{shards} shards on {world} ranks: relative error {error}");
                assert!(!statistics.is_empty());
                for range in statistics {
                    let error = relative_error(&own_after[range.clone()], &after[range]);
                    assert!(error < 1e-5, "{shards} shards on {world} ranks: statistics {error}");
                }
            }
        }
    }
}

/// Covers dropout, steps in which some shards and whole ranks have no samples, and more ranks than shards.
#[test]
fn the_same_bits_on_any_number_of_ranks() {
    const SHARDS: usize = 6;
    let train = |group: Group| {
        let mut ddp = ddp(group, SHARDS, 0.2, &plain());
        let states = [14, 4, 15, 14, 2, 1, 13, 14, 14].into_iter().enumerate().map(|(number, samples)| {
            step(&mut ddp, number, samples, SHARDS, &plain());
            // Every other step is followed directly by the next forward pass.
            if number % 2 == 0 { values(&ddp).iter().map(|x| x.to_bits()).collect() } else { Vec::new() }
        });
        states.collect::<Vec<Vec<u32>>>()
    };
    let alone = train(Group::alone());
    assert_ne!(alone[0], alone[2]);
    for world in [2, 3, 6, 8] {
        for states in threads::spawn(world, train).unwrap() {
            assert!(states == alone, "{world} ranks");
        }
    }
}

/// Runs one rank with two shards, whose models may take different paths, and returns the error.
fn apart(forward: impl Fn(&BurnModel<ResidualNet>, usize, &CrossShardPass) -> Loss + Sync) -> String {
    let mut ddp = ddp(Group::alone(), 2, 0.0, &plain());
    ddp.cross_shard_passes(vec![Some(0), Some(1)], forward).unwrap_err().to_string()
}

#[test]
fn shards_that_part_are_told_and_nobody_waits() {
    let layers = |model: &BurnModel<ResidualNet>, times: usize, pass: &CrossShardPass| {
        let (images, labels) = batch(&[1, 2], &plain());
        let mut x = model.conv1.forward(images);
        for _ in 0..times {
            x = sync_batch_norm(&model.bn1, x, pass);
        }
        let [samples, channels, ..] = x.dims();
        loss(x.mean_dim(2).mean_dim(3).reshape([samples, channels]), labels)
    };
    for (first, second) in [(1, 2), (2, 1), (0, 1)] {
        let error = apart(|model, shard, pass| layers(model, [first, second][shard], pass));
        assert!(error.contains("the same way through the model"), "{first} {second}: {error}");
    }
    let error = apart(|model, shard, pass| Loss { count: shard as f64, ..layers(model, 1, pass) });
    assert!(error.contains("shard 0") && error.contains("`None`"), "{error}");
}

#[test]
#[should_panic(expected = "the model's own")]
fn a_panic_in_one_shard_ends_the_others_and_is_the_callers() {
    apart(|_, shard, _| match shard {
        0 => panic!("the model's own"),
        _ => unreachable!("it is never this shard's turn"),
    });
}

#[test]
fn a_rank_that_leaves_ends_the_others_step() {
    let errors = threads::spawn(3, |group| {
        let mut ddp = ddp(group, 4, 0.0, &plain());
        step(&mut ddp, 0, 9, 4, &plain());
        (ddp.rank().0 != 2).then(|| {
            let inputs = ddp.shards().map(Some).collect();
            let forward = |model: &BurnModel<ResidualNet>, shard, pass: &CrossShardPass| {
                let (images, labels) = batch(&[shard], &plain());
                let key = DropoutKey { seed: 5, epoch: 0, step: 1, shard };
                loss(model.forward_cross_shard(images, &key, pass), labels)
            };
            ddp.cross_shard_passes(inputs, forward).unwrap_err().to_string()
        })
    });
    for error in errors.unwrap().into_iter().flatten() {
        assert!(error.contains("rank 2"), "{error}");
    }
}

#[test]
fn inputs_must_be_as_many_as_shards() {
    let mut ddp = ddp(Group::alone(), 2, 0.0, &plain());
    let forward = |_: &BurnModel<ResidualNet>, (), _: &CrossShardPass| unreachable!("nothing is computed");
    let error = ddp.cross_shard_passes(vec![Some(())], forward).unwrap_err().to_string();
    assert!(error.contains("has 2 shards but 1 input"), "{error}");
}
