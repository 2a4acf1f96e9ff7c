//! How long a forward and a backward pass of a transformer take, beside Burn's `TransformerEncoder` and one
//! that is written by hand of Burn's layers: `cargo run -p kolo-burn --example transformer_speed`.
//!
//! All have the same shape and run in turn, pass by pass, on one thread, whose processor time is measured: it
//! is not disturbed by others. What is printed are medians, and the medians of each round's ratios. The last
//! two columns are passes with dropout.

use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use burn::nn::{Gelu, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::activation::softmax;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use burn_flex_nn::cross_entropy;
use kolo_burn::{DropoutKey, Transformer, TransformerConfig};
use rustix::time::{ClockId, clock_gettime};

#[derive(Clone, Copy)]
struct Shape {
    batch: usize,
    time: usize,
    width: usize,
    heads: usize,
    layers: usize,
}

const SHAPES: [Shape; 4] = [
    Shape { batch: 12, time: 64, width: 128, heads: 4, layers: 4 },
    Shape { batch: 4, time: 256, width: 128, heads: 4, layers: 2 },
    Shape { batch: 2, time: 128, width: 384, heads: 6, layers: 2 },
    Shape { batch: 32, time: 16, width: 64, heads: 2, layers: 2 },
];

/// Rows and vocabulary of the losses.
const LOSSES: [[usize; 2]; 2] = [[768, 65], [256, 8192]];

const DROPOUT: f64 = 0.1;

/// A block by hand: one linear layer for queries, keys and values, the mask added, no dropout.
struct Block {
    ln_1: LayerNorm,
    qkv: Linear,
    out: Linear,
    ln_2: LayerNorm,
    inner: Linear,
    outer: Linear,
}

impl Block {
    fn new(width: usize, device: &Device) -> Self {
        let linear = |input, output| LinearConfig::new(input, output).init(device);
        let norm = || LayerNormConfig::new(width).init(device);
        Block {
            ln_1: norm(),
            qkv: linear(width, 3 * width),
            out: linear(width, width),
            ln_2: norm(),
            inner: linear(width, 4 * width),
            outer: linear(4 * width, width),
        }
    }

    fn forward(&self, x: Tensor<3>, heads: usize, mask: &Tensor<4>) -> Tensor<3> {
        let [batch, time, width] = x.dims();
        let qkv = self.qkv.forward(self.ln_1.forward(x.clone()));
        let [q, k, v]: [Tensor<4>; 3] = std::array::from_fn(|third| {
            let part = qkv.clone().narrow(2, third * width, width);
            part.reshape([batch, time, heads, width / heads]).swap_dims(1, 2)
        });
        let scale = 1.0 / ((width / heads) as f32).sqrt();
        let weights = softmax(q.mul_scalar(scale).matmul(k.transpose()) + mask.clone(), 3);
        let heads = weights.matmul(v).swap_dims(1, 2).reshape([batch, time, width]);
        let x = x + self.out.forward(heads);
        x.clone() + self.outer.forward(Gelu::new().forward(self.inner.forward(self.ln_2.forward(x))))
    }
}

struct Contestants {
    shape: Shape,
    ours: Transformer,
    dropping: Transformer,
    burns: TransformerEncoder,
    burns_dropping: TransformerEncoder,
    by_hand: Vec<Block>,
    causal: Tensor<3, Bool>,
    mask: Tensor<4>,
    x: Tensor<3>,
}

impl Contestants {
    fn new(shape: Shape, device: &Device) -> Self {
        let Shape { batch, time, width, heads, layers } = shape;
        let config = TransformerConfig::new(width, heads, layers);
        let encoder = TransformerEncoderConfig::new(width, 4 * width, heads, layers).with_norm_first(true);
        let causal = generate_autoregressive_mask(1, time, device);
        let zeros = Tensor::<4>::zeros([1, 1, time, time], device);
        Contestants {
            shape,
            ours: config.init(device),
            dropping: config.with_dropout(DROPOUT).init(device),
            burns: encoder.clone().with_dropout(0.0).init(device),
            burns_dropping: encoder.with_dropout(DROPOUT).init(device),
            by_hand: (0..layers).map(|_| Block::new(width, device)).collect(),
            mask: zeros.mask_fill(causal.clone().unsqueeze_dim(1), -1e9),
            causal: causal.expand([batch, time, time]),
            x: numbers([batch, time, width], device),
        }
    }

    /// Seconds of one pass, forward and backward.
    fn pass(&self, contestant: usize) -> f64 {
        let key = DropoutKey { seed: 0, epoch: 0, step: 0, shard: 0 };
        let x = self.x.clone();
        let burns = || TransformerEncoderInput::new(x.clone()).mask_attn(self.causal.clone());
        timed(|| match contestant {
            0 => self.ours.forward(x.clone(), None),
            1 => self.burns.forward(burns()),
            2 => {
                self.by_hand.iter().fold(x.clone(), |x, block| block.forward(x, self.shape.heads, &self.mask))
            }
            3 => self.dropping.forward(x.clone(), Some(&key)),
            _ => self.burns_dropping.forward(burns()),
        })
    }
}

/// Seconds of processor time of this thread.
fn now() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn timed<const D: usize>(forward: impl FnOnce() -> Tensor<D>) -> f64 {
    let start = now();
    let gradients = forward().sum().backward();
    let seconds = now() - start;
    drop(gradients);
    seconds
}

fn numbers<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    let values = (0..shape.iter().product::<usize>()).map(|i| (i as f32 * 0.37).sin());
    Tensor::from_data(TensorData::new(values.collect::<Vec<f32>>(), shape), device)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Median times of each contestant in milliseconds, and of their ratios to the first one's.
fn measure(contestants: usize, rounds: usize, pass: impl Fn(usize) -> f64) -> Vec<[f64; 2]> {
    for contestant in 0..contestants {
        pass(contestant);
    }
    let rounds: Vec<Vec<f64>> = (0..rounds).map(|_| (0..contestants).map(&pass).collect()).collect();
    let of = |contestant: usize| {
        let time = median(rounds.iter().map(|round| round[contestant] * 1e3));
        [time, median(rounds.iter().map(|round| round[contestant] / round[0]))]
    };
    (0..contestants).map(of).collect()
}

fn main() {
    let device = Device::flex().autodiff();
    let repeats = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(30);
    println!("ms of a pass forward and backward (times that of Kolo's)");
    println!(
        "batch time width heads layers |  Kolo |          Burn |       by hand | Kolo, dropout | Burn, dropout"
    );
    for shape in SHAPES {
        let contestants = Contestants::new(shape, &device);
        let results = measure(5, repeats, |contestant| contestants.pass(contestant));
        let Shape { batch, time, width, heads, layers } = shape;
        print!("{batch:5} {time:4} {width:5} {heads:5} {layers:6} | {:5.1}", results[0][0]);
        results[1..].iter().for_each(|[time, ratio]| print!(" | {time:5.1} ({ratio:4.2})"));
        println!();
    }
    println!(" rows vocabulary                |  Kolo |         Burn");
    for [rows, vocabulary] in LOSSES {
        let logits = numbers([rows, vocabulary], &device).require_grad();
        let targets: Vec<usize> = (0..rows).map(|row| row * 7 % vocabulary).collect();
        let ours: Vec<Option<usize>> = targets.iter().copied().map(Some).collect();
        let targets: Vec<i64> = targets.iter().map(|target| *target as i64).collect();
        let targets = Tensor::<1, Int>::from_data(&targets[..], &device);
        let burns = CrossEntropyLossConfig::new().init(&device);
        let results = measure(2, repeats, |contestant| match contestant {
            0 => timed(|| cross_entropy(logits.clone(), ours.clone())),
            _ => timed(|| burns.forward(logits.clone(), targets.clone())),
        });
        println!(
            "{rows:5} {vocabulary:10}                | {:5.2} | {:5.2} ({:4.2})",
            results[0][0], results[1][0], results[1][1]
        );
    }
}
