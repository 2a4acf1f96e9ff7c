//! Time of a training step of a language model on a GPU, and how much of it is Kolo's:
//! `cargo run --release -p kolo-burn --features wgpu --example device_speed` (or `cuda`).
//!
//! Three ways run one after the other: Burn's forward and backward passes alone, without an optimizer; steps
//! of `Ddp` with one worker; and with two workers (threads), which share the device. Every step ends with a
//! value on the host, so that the device's work is over. Medians are printed.

use std::time::Instant;

use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig};
use burn::tensor::{Device, Int, Tensor, TensorData};
use kolo_burn::{Ddp, Loss, Transformer, TransformerConfig, matmul, next_token_loss};
use kolo_comm::{Group, threads};
use kolo_ddp::optimizer::{self, Settings};
use kolo_ddp::{Config, Error};

const VOCABULARY: usize = 65;
const SHARDS: usize = 2;
const WARM_UP: usize = 10;

#[derive(Clone, Copy)]
struct Shape {
    batch: usize,
    time: usize,
    width: usize,
    layers: usize,
}

const SHAPES: [Shape; 2] = [
    Shape { batch: 32, time: 128, width: 256, layers: 4 },
    Shape { batch: 32, time: 256, width: 768, layers: 12 },
];

#[derive(Module, Debug)]
struct Gpt {
    tokens: Embedding,
    transformer: Transformer,
}

impl Gpt {
    fn new(shape: Shape, device: &Device) -> Self {
        Gpt {
            tokens: EmbeddingConfig::new(VOCABULARY, shape.width).init(device),
            transformer: TransformerConfig::new(shape.width, shape.width / 64, shape.layers).init(device),
        }
    }

    fn loss(&self, shape: Shape, shard: usize, device: &Device) -> Loss {
        let batch = shape.batch / SHARDS;
        let token = |i: usize| ((i * i + shard) % VOCABULARY) as i32;
        let tokens = |first: usize| {
            let tokens: Vec<i32> = (first..first + batch * shape.time).map(token).collect();
            Tensor::<2, Int>::from_data(TensorData::new(tokens, [batch, shape.time]), device)
        };
        let x = self.transformer.forward(self.tokens.forward(tokens(0)), None);
        next_token_loss(matmul(x, self.tokens.weight.val().transpose().unsqueeze()), tokens(1))
    }
}

/// Median seconds of Burn's forward and backward passes of a step's shards. A gradient is read at the end,
/// because the device computes behind the host.
fn passes(shape: Shape, device: &Device, steps: usize) -> f64 {
    let model = Gpt::new(shape, device);
    median((0..WARM_UP + steps).map(|_| {
        let begun = Instant::now();
        for shard in 0..SHARDS {
            let gradients = model.loss(shape, shard, device).into_mean().backward();
            let gradient = model.tokens.weight.val().grad(&gradients).expect("the embedding is trained");
            let _ = gradient.sum().into_scalar::<f32>();
        }
        begun.elapsed().as_secs_f64()
    }))
}

/// Median seconds of a step of one worker.
fn steps(group: Group, shape: Shape, device: &Device, steps: usize) -> Result<f64, Error> {
    let config = Config { shards: Some(SHARDS), ..Config::default() };
    let adamw = optimizer::named("adamw", &Settings::default())?;
    let mut ddp = Ddp::new(group, Gpt::new(shape, device), &config, adamw)?;
    let mut times = Vec::new();
    for _ in 0..WARM_UP + steps {
        let begun = Instant::now();
        for shard in ddp.shards() {
            let loss = ddp.model().loss(shape, shard, device);
            ddp.backward(loss)?;
        }
        ddp.step(1e-3)?;
        times.push(begun.elapsed().as_secs_f64());
    }
    Ok(median(times.into_iter()))
}

fn median(times: impl Iterator<Item = f64>) -> f64 {
    let mut times: Vec<f64> = times.skip(WARM_UP).collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    #[cfg(feature = "cuda")]
    let device = Device::cuda(0).autodiff();
    #[cfg(not(feature = "cuda"))]
    let device = Device::wgpu_options().init()?.autodiff();
    println!("{device:?}");
    let count = std::env::args().nth(1).map_or(Ok(30), |text| text.parse())?;
    println!("batch time width layers | Burn's passes, ms | Kolo, 1 worker, ms | Kolo, 2 workers, ms");
    for shape in SHAPES {
        let burn = passes(shape, &device, count);
        let alone = steps(Group::alone(), shape, &device, count)?;
        let shared = threads::spawn(2, |group| steps(group, shape, &device, count))?;
        let shared = shared.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().fold(0.0, f64::max);
        let Shape { batch, time, width, layers } = shape;
        let [burn_ms, alone_ms, shared_ms] = [burn, alone, shared].map(|seconds| seconds * 1e3);
        println!(
            "{batch:5} {time:4} {width:5} {layers:6} | {burn_ms:17.1} | {alone_ms:11.1} ({:4.2}) | {shared_ms:12.1} ({:4.2})",
            alone / burn,
            shared / burn
        );
    }
    Ok(())
}
