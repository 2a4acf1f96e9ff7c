//! Gradient hook on a wgpu device (Vulkan): two workers train a small network as they do on `flex`.
//!
//! Without an adapter the tests are ignored, with the reason. `bench/wgpu.sh` runs them on a CPU with Mesa's
//! lavapipe.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Int, Tensor, TensorData};
use kolo_burn::{Ddp, Dropout, DropoutKey, Loss, sync_batch_norm};
use kolo_comm::{Group, threads};
use kolo_ddp::cross_shard::CrossShardPass;
use kolo_ddp::optimizer::{self, Settings};
use kolo_ddp::{Config, Error};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

const CLASSES: usize = 4;
const SIDE: usize = 8;
const SHARDS: usize = 3;
const STEPS: usize = 6;
const WORKERS: usize = 2;

/// Convolution, batch normalization, dropout and a linear layer.
#[derive(Module, Debug)]
struct Net {
    conv: Conv2d,
    norm: BatchNorm,
    dropout: Dropout,
    linear: Linear,
}

fn wave(seed: usize, len: usize) -> Vec<f32> {
    (0..len).map(|i| ((seed * 7_919 + i * 104_729 + 13) as f32 * 0.37).sin()).collect()
}

impl Net {
    /// Creates the same values on every device.
    fn new(device: &Device) -> Self {
        let mut conv = Conv2dConfig::new([1, 6], [3, 3]).with_bias(false).init(device);
        let mut linear = LinearConfig::new(6, CLASSES).init(device);
        let weight = TensorData::new(wave(1, 6 * 9), [6, 1, 3, 3]);
        conv.weight = conv.weight.map(|_| Tensor::from_data(weight, device).require_grad());
        let weight = TensorData::new(wave(2, 6 * CLASSES), [6, CLASSES]);
        linear.weight = linear.weight.map(|_| Tensor::from_data(weight, device).require_grad());
        linear.bias = linear.bias.map(|bias| bias.map(|old| Tensor::zeros_like(&old).require_grad()));
        Net { conv, norm: BatchNormConfig::new(6).init(device), dropout: Dropout::new(0.2), linear }
    }

    fn forward(
        &self,
        images: Tensor<4>,
        key: &DropoutKey,
        norm: impl Fn(&BatchNorm, Tensor<4>) -> Tensor<4>,
    ) -> Tensor<2> {
        let x = relu(norm(&self.norm, self.conv.forward(images)));
        let [samples, channels, ..] = x.dims();
        let x = x.mean_dim(2).mean_dim(3).reshape([samples, channels]);
        self.linear.forward(self.dropout.forward(x, "features", key))
    }
}

fn loss(net: &Net, step: usize, shard: usize, device: &Device, pass: Option<&CrossShardPass>) -> Loss {
    let count = 3 + shard;
    let pixels =
        TensorData::new(wave(50 + step * SHARDS + shard, count * SIDE * SIDE), [count, 1, SIDE, SIDE]);
    let labels: Vec<i32> = (0..count).map(|sample| ((step + shard + sample) % CLASSES) as i32).collect();
    let labels = Tensor::<1, Int>::from_data(TensorData::new(labels, [count]), device);
    let key = DropoutKey { seed: 5, epoch: 0, step, shard };
    let scores = net.forward(Tensor::from_data(pixels, device), &key, |norm, x| match pass {
        Some(pass) => sync_batch_norm(norm, x, pass),
        None => norm.forward(x),
    });
    Loss::mean(CrossEntropyLossConfig::new().init(device).forward(scores, labels), count)
}

/// Loss of each step, and all values after the last one.
struct Trajectory {
    losses: Vec<f64>,
    values: Vec<f32>,
}

/// Trains on one worker. With `together`, all shards go through the model in lockstep, normalized over the
/// global batch.
fn train(group: Group, device: &Device, together: bool) -> Result<Trajectory, Error> {
    let config = Config { shards: Some(SHARDS), verify_every: 2, ..Config::default() };
    let sgd = optimizer::named("sgd", &Settings::default().with("momentum", 0.9))?;
    let mut ddp = Ddp::new(group, Net::new(device), &config, sgd)?;
    let mut losses = Vec::new();
    for step in 0..STEPS {
        if together {
            let shards = ddp.shards().map(Some).collect();
            ddp.cross_shard_passes(shards, |net, shard, pass| loss(net, step, shard, device, Some(pass)))?;
        } else {
            for shard in ddp.shards() {
                let loss = loss(ddp.model(), step, shard, device, None);
                ddp.backward(loss)?;
            }
        }
        losses.push(ddp.step(0.05)?.loss);
    }
    let values = ddp.with_replica(|replica| replica.values().map(<[f32]>::to_vec))?;
    Ok(Trajectory { losses, values })
}

fn two_workers(device: &Device, together: bool) -> Result<Trajectory, Failed> {
    let workers = threads::spawn(WORKERS, |group| train(group, device, together))?;
    let mut workers = workers.into_iter().collect::<Result<Vec<_>, _>>()?;
    // Even with inexact kernels, all workers step with the same sums.
    if workers.windows(2).any(|pair| pair[0].values != pair[1].values || pair[0].losses != pair[1].losses) {
        return Err("the workers have different weights".into());
    }
    Ok(workers.swap_remove(0))
}

/// Compares with `flex`, within the error of another order of additions after that many steps.
fn compare(device: &Device, together: bool) -> Result<(), Failed> {
    let (on_device, on_flex) =
        (two_workers(device, together)?, two_workers(&Device::flex().autodiff(), together)?);
    let falls = on_flex.losses[0] - on_flex.losses[STEPS - 1];
    if falls.abs() < 1e-2 {
        return Err(format!("the loss has moved by {falls} only: nothing was trained").into());
    }
    for (step, (a, b)) in on_device.losses.iter().zip(&on_flex.losses).enumerate() {
        if (a - b).abs() > 1e-4 * b.abs() {
            return Err(format!("step {step}: loss {a} on {device:?}, {b} on flex").into());
        }
    }
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>();
    let pairs = on_device.values.iter().zip(&on_flex.values);
    let error = square(&mut pairs.map(|(a, b)| f64::from(*a) - f64::from(*b)));
    let relative = (error / square(&mut on_flex.values.iter().map(|x| f64::from(*x)))).sqrt();
    println!("losses {:?}, weights apart by {relative:.1e}", on_device.losses);
    if relative > 1e-4 { Err(format!("weights apart by {relative}").into()) } else { Ok(()) }
}

fn main() {
    let arguments = Arguments::from_args();
    let adapter = Device::wgpu_options().init().map(Device::autodiff).map_err(|cause| cause.to_string());
    let trial = |name: &str, together: bool| {
        let adapter = adapter.clone();
        Trial::ignorable_test(name, move || match adapter {
            Ok(device) => compare(&device, together).map(|()| Completion::Completed),
            Err(reason) => Ok(Completion::ignored_with(reason)),
        })
    };
    let trials =
        vec![trial("two_workers_train_as_on_flex", false), trial("shards_in_step_train_as_on_flex", true)];
    libtest_mimic::run(&arguments, trials).exit();
}
