//! Training on Burn's other devices (features `cuda`, `rocm`, `wgpu`, `cpu`): two workers train two small
//! networks as they do on `flex`, in every precision that the device has.
//!
//! A device that this machine lacks is ignored, with the reason. `bench/wgpu.sh` runs `wgpu` on a CPU with
//! Mesa's lavapipe; `cargo test -p kolo-burn --features cuda --test devices` needs a GPU and CUDA's NVRTC.

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{BatchNorm, BatchNormConfig, Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_flex_nn::{conv2d, linear};
use kolo_burn::{
    Ddp, Dropout, DropoutKey, Loss, Precision, Transformer, TransformerConfig, next_token_loss,
    sync_batch_norm, with_precision,
};
use kolo_comm::{Group, threads};
use kolo_ddp::cross_shard::CrossShardPass;
use kolo_ddp::optimizer::{self, Settings};
use kolo_ddp::{Config, Error, LossScaling};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

const CLASSES: usize = 4;
const SIDE: usize = 8;
const VOCABULARY: usize = 17;
const TIME: usize = 6;
const WIDTH: usize = 16;
const SHARDS: usize = 3;
const STEPS: usize = 6;
const WORKERS: usize = 2;

/// A network, and the loss of a shard of a step.
trait Net: Module + Send + Sync + 'static {
    /// Learning rate, so low that roundings do not grow from step to step.
    const RATE: f64;

    /// Creates the same values on every device.
    fn new(device: &Device) -> Self;

    /// Computes the loss. `pass` normalizes over the global batch.
    fn loss(&self, key: &DropoutKey, device: &Device, pass: Option<&CrossShardPass>) -> Loss;
}

fn wave(seed: usize, len: usize) -> Vec<f32> {
    (0..len).map(|i| ((seed * 7_919 + i * 104_729 + 13) as f32 * 0.37).sin()).collect()
}

/// Replaces matrices and kernels by the same values on every device. Vectors keep their zeros and ones.
struct Waves(usize);

impl ModuleMapper for Waves {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        self.0 += 1;
        let shape = param.val().shape();
        if D < 2 {
            return param;
        }
        let inputs = shape.num_elements() / shape[if D == 2 { 1 } else { 0 }];
        let values: Vec<f32> = wave(self.0, shape.num_elements());
        let scale = 1.5 / (inputs as f32).sqrt();
        let values: Vec<f32> = values.into_iter().map(|value| value * scale).collect();
        param.map(|old| Tensor::from_data(TensorData::new(values, shape), &old.device()).require_grad())
    }
}

/// Convolution, batch normalization, dropout and a linear layer.
#[derive(Module, Debug)]
struct Images {
    conv: Conv2d,
    norm: BatchNorm,
    dropout: Dropout,
    linear: Linear,
}

impl Net for Images {
    const RATE: f64 = 0.05;

    fn new(device: &Device) -> Self {
        let net = Images {
            conv: Conv2dConfig::new([1, 6], [3, 3]).with_bias(false).init(device),
            norm: BatchNormConfig::new(6).init(device),
            dropout: Dropout::new(0.2),
            linear: LinearConfig::new(6, CLASSES).init(device),
        };
        let bias =
            net.linear.bias.clone().map(|bias| bias.map(|old| Tensor::zeros_like(&old).require_grad()));
        let linear = Linear { bias, ..net.linear.clone() };
        Images { linear, ..net }.map(&mut Waves(0))
    }

    fn loss(&self, key: &DropoutKey, device: &Device, pass: Option<&CrossShardPass>) -> Loss {
        let count = 3 + key.shard;
        let pixels = wave(50 + key.step * SHARDS + key.shard, count * SIDE * SIDE);
        let images = Tensor::from_data(TensorData::new(pixels, [count, 1, SIDE, SIDE]), device);
        let labels: Vec<i32> =
            (0..count).map(|sample| ((key.step + key.shard + sample) % CLASSES) as i32).collect();
        let labels = Tensor::<1, Int>::from_data(TensorData::new(labels, [count]), device);
        let x = conv2d(&self.conv, images);
        let x = relu(match pass {
            Some(pass) => sync_batch_norm(&self.norm, x, pass),
            None => self.norm.forward(x),
        });
        let [samples, channels, ..] = x.dims();
        let x = x.mean_dim(2).mean_dim(3).reshape([samples, channels]);
        let scores = linear(&self.linear, self.dropout.forward(x, "features", key));
        Loss::mean(CrossEntropyLossConfig::new().init(device).forward(scores, labels), count)
    }
}

/// A transformer whose embedding is also its last layer.
#[derive(Module, Debug)]
struct Letters {
    embedding: Embedding,
    transformer: Transformer,
}

impl Net for Letters {
    const RATE: f64 = 0.01;

    fn new(device: &Device) -> Self {
        let embedding = EmbeddingConfig::new(VOCABULARY, WIDTH).init(device);
        let transformer = TransformerConfig::new(WIDTH, 2, 2).with_dropout(0.1).init(device);
        Letters { embedding, transformer }.map(&mut Waves(0))
    }

    fn loss(&self, key: &DropoutKey, device: &Device, _: Option<&CrossShardPass>) -> Loss {
        let count = 2 + key.shard;
        let token = |i: usize| ((i * i + 3 * key.step + key.shard) % VOCABULARY) as i32;
        let tokens = |first: usize| {
            let tokens: Vec<i32> = (first..first + count * TIME).map(token).collect();
            Tensor::<2, Int>::from_data(TensorData::new(tokens, [count, TIME]), device)
        };
        let x = self.transformer.forward(self.embedding.forward(tokens(0)), Some(key));
        let logits = kolo_burn::matmul(x, self.embedding.weight.val().transpose().unsqueeze());
        next_token_loss(logits, tokens(1))
    }
}

#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    /// True if all shards go through the model in lockstep, normalized over the global batch.
    is_together: bool,
    precision: Precision,
    /// Greatest distance of the weights from those on `flex`, relative to their norm: roundings in another
    /// order, which a lower type makes larger.
    tolerance: f64,
}

const WAYS: [Way; 4] = [
    Way { name: "as_on_flex", is_together: false, precision: Precision::F32, tolerance: 1e-5 },
    Way { name: "in_lockstep_as_on_flex", is_together: true, precision: Precision::F32, tolerance: 1e-5 },
    Way { name: "in_bf16_as_on_flex", is_together: false, precision: Precision::Bf16, tolerance: 2e-2 },
    Way { name: "in_f16_as_on_flex", is_together: false, precision: Precision::F16, tolerance: 2e-3 },
];

/// Loss of each step, and all values before the first one and after the last one.
struct Trajectory {
    losses: Vec<f64>,
    begin: Vec<f32>,
    values: Vec<f32>,
}

/// Trains on one worker.
fn train<N: Net>(group: Group, device: &Device, way: Way) -> Result<Trajectory, Error> {
    // Low enough that no step overflows and is skipped.
    let scaling = LossScaling { initial: 1024.0, ..LossScaling::default() };
    let loss_scaling = (way.precision == Precision::F16).then_some(scaling);
    let config = Config { shards: Some(SHARDS), verify_every: 2, loss_scaling, ..Config::default() };
    let sgd = optimizer::named("sgd", &Settings::default().with("momentum", 0.9))?;
    let mut ddp = Ddp::new(group, N::new(device), &config, sgd)?;
    let values = |ddp: &Ddp<N>| ddp.with_replica(|replica| replica.values().map(<[f32]>::to_vec));
    let (begin, mut losses) = (values(&ddp)?, Vec::new());
    for step in 0..STEPS {
        let key = |shard| DropoutKey { seed: 5, epoch: 0, step, shard };
        if way.is_together {
            let shards = ddp.shards().map(Some).collect();
            ddp.cross_shard_passes(shards, |net, shard, pass| net.loss(&key(shard), device, Some(pass)))?;
        } else {
            for shard in ddp.shards() {
                let loss = with_precision(way.precision, || ddp.model().loss(&key(shard), device, None));
                ddp.backward(loss)?;
            }
        }
        losses.push(ddp.step(N::RATE)?.loss);
    }
    let values = values(&ddp)?;
    Ok(Trajectory { losses, begin, values })
}

fn two_workers<N: Net>(device: &Device, way: Way) -> Result<Trajectory, Failed> {
    let workers = threads::spawn(WORKERS, |group| train::<N>(group, device, way))?;
    let mut workers = workers.into_iter().collect::<Result<Vec<_>, _>>()?;
    // Even with inexact kernels, all workers step with the same sums.
    if workers.windows(2).any(|pair| pair[0].values != pair[1].values || pair[0].losses != pair[1].losses) {
        return Err("the workers have different weights".into());
    }
    Ok(workers.swap_remove(0))
}

/// Distance of two vectors, relative to the norm of the second.
fn distance(a: &[f32], b: &[f32]) -> f64 {
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>();
    let error = square(&mut a.iter().zip(b).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    (error / square(&mut b.iter().map(|x| f64::from(*x)))).sqrt()
}

/// Compares with `flex`, within the error of another order of additions after that many steps.
fn compare<N: Net>(device: &Device, way: Way) -> Result<(), Failed> {
    let flex = Device::flex().autodiff();
    let (on_device, on_flex) = (two_workers::<N>(device, way)?, two_workers::<N>(&flex, way)?);
    let moved = distance(&on_device.values, &on_device.begin);
    if moved.is_nan() || moved < 1e-2 {
        return Err(format!("the weights have moved by {moved} only: nothing was trained").into());
    }
    let apart = distance(&on_device.values, &on_flex.values);
    println!("{}: weights moved by {moved:.1e}, apart by {apart:.1e}", way.name);
    for (step, (a, b)) in on_device.losses.iter().zip(&on_flex.losses).enumerate() {
        if (a - b).abs() > way.tolerance * b.abs() {
            return Err(format!("step {step}: loss {a} on {device:?}, {b} on flex").into());
        }
    }
    if apart.is_nan() || apart > way.tolerance {
        return Err(format!("weights apart by {apart}").into());
    }
    // A lower type that is not used would pass all of the above.
    if way.precision != Precision::F32 {
        let exact = two_workers::<N>(device, Way { precision: Precision::F32, ..way })?;
        let change = distance(&on_device.values, &exact.values);
        println!("{}: {change:.1e} from f32", way.name);
        if change < 1e-6 {
            return Err(format!("{} has the weights of f32", way.precision.name()).into());
        }
    }
    Ok(())
}

/// The devices of the features that are switched on: name, and the device or the reason why it is not there.
fn devices() -> Vec<(&'static str, Result<Device, String>)> {
    #[cfg_attr(
        not(any(feature = "cuda", feature = "rocm", feature = "wgpu", feature = "cpu")),
        expect(unused_mut, reason = "filled by the features' lines")
    )]
    let mut devices = Vec::new();
    #[cfg(feature = "cuda")]
    devices.push(("cuda", probed(|| Device::cuda(0))));
    #[cfg(feature = "rocm")]
    devices.push(("rocm", probed(|| Device::rocm(0))));
    #[cfg(feature = "wgpu")]
    devices.push(("wgpu", Device::wgpu_options().init().map(Device::autodiff).map_err(|e| e.to_string())));
    #[cfg(feature = "cpu")]
    devices.push(("cpu", probed(Device::cpu)));
    devices
}

/// Computes something on a device: where there is none, Burn panics at the first use.
#[cfg(any(feature = "cuda", feature = "rocm", feature = "cpu"))]
fn probed(device: impl FnOnce() -> Device + std::panic::UnwindSafe) -> Result<Device, String> {
    let computed = std::panic::catch_unwind(|| {
        let device = device().autodiff();
        let two = Tensor::<1>::ones([2], &device).sum().into_scalar::<f32>();
        (two == 2.0).then_some(device).ok_or_else(|| format!("1 + 1 is {two} there"))
    });
    computed.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_string())
    })
}

fn trial<N: Net>(net: &str, name: &str, device: &Result<Device, String>, way: Way) -> Trial {
    let device = device.clone();
    Trial::ignorable_test(format!("{name}::{net}_train_{}", way.name), move || match device {
        Err(reason) => Ok(Completion::ignored_with(reason)),
        Ok(device) if !way.precision.is_on(&device) => {
            Ok(Completion::ignored_with(format!("the device has no {}", way.precision.name())))
        }
        Ok(device) => compare::<N>(&device, way).map(|()| Completion::Completed),
    })
}

fn main() {
    let arguments = Arguments::from_args();
    let devices = devices();
    let of_device = |(name, device): &(&'static str, Result<Device, String>)| {
        let images = WAYS.map(|way| trial::<Images>("images", name, device, way));
        let letters = WAYS.into_iter().filter(|way| !way.is_together);
        let letters = letters.map(|way| trial::<Letters>("letters", name, device, way));
        images.into_iter().chain(letters).collect::<Vec<_>>()
    };
    libtest_mimic::run(&arguments, devices.iter().flat_map(of_device).collect()).exit();
}
