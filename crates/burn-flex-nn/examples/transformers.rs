//! Processor time of a forward and a backward pass of a transformer of GPT-2's blocks without dropout, for
//! `bench/peers/transformers.py`.
//!
//! It reads lines `BATCH TIME WIDTH HEADS LAYERS SECONDS` from standard input, and answers each with the
//! median of the passes that fit into the time, in milliseconds: `cargo run --release -p burn-flex-nn
//! --example transformers`.

use std::time::{Duration, Instant};

use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::{Device, Tensor, TensorData};
use burn_flex_nn::{
    Attention, feed_forward, fork_layer_norm, layer_norm, linear, linear_add, self_attention,
};
use rustix::time::{ClockId, clock_gettime};

/// Allocator of the program `kolo`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Block {
    ln_1: LayerNorm,
    c_attn: Linear,
    c_proj: Linear,
    ln_2: LayerNorm,
    inner: Linear,
    outer: Linear,
}

impl Block {
    fn new(width: usize, device: &Device) -> Self {
        let linear = |inputs, outputs| LinearConfig::new(inputs, outputs).init(device);
        let norm = || LayerNormConfig::new(width).init(device);
        Block {
            ln_1: norm(),
            c_attn: linear(width, 3 * width),
            c_proj: linear(width, width),
            ln_2: norm(),
            inner: linear(width, 4 * width),
            outer: linear(4 * width, width),
        }
    }

    fn forward(&self, x: Tensor<3>, heads: usize) -> Tensor<3> {
        let attention = Attention { heads, causal: true, ..Attention::default() };
        let [x, normalized] = forked(&self.ln_1, x);
        let attended = self_attention(linear(&self.c_attn, normalized), attention);
        let [x, normalized] = forked(&self.ln_2, linear_add(&self.c_proj, attended, x, None));
        feed_forward(&self.inner, &self.outer, normalized, x, None)
    }
}

fn normalized(layer: &LayerNorm, x: Tensor<3>) -> Tensor<3> {
    layer_norm(x, layer.gamma.val(), layer.beta.as_ref().map(|beta| beta.val()), 1e-5)
}

fn forked(layer: &LayerNorm, x: Tensor<3>) -> [Tensor<3>; 2] {
    fork_layer_norm(x, layer.gamma.val(), layer.beta.as_ref().map(|beta| beta.val()), 1e-5)
}

fn main() {
    for line in std::io::stdin().lines() {
        let line = line.expect("a line of standard input");
        let words: Vec<f64> = line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        let &[batch, time, width, heads, layers, seconds] = &words[..] else {
            panic!("{line:?}: a line is BATCH TIME WIDTH HEADS LAYERS SECONDS");
        };
        let shape = [batch, time, width].map(|number| number as usize);
        println!("{}", median(shape, heads as usize, layers as usize, Duration::from_secs_f64(seconds)));
    }
}

/// Returns the median of the passes in milliseconds, after one that warms up.
fn median([batch, time, width]: [usize; 3], heads: usize, layers: usize, duration: Duration) -> f64 {
    let device = Device::flex().autodiff();
    let blocks: Vec<Block> = (0..layers).map(|_| Block::new(width, &device)).collect();
    let last = LayerNormConfig::new(width).init(&device);
    let values: Vec<f32> = (0..batch * time * width).map(|i| (i as f32 * 0.37).sin()).collect();
    let x = Tensor::<3>::from_data(TensorData::new(values, [batch, time, width]), &device);
    let pass = || {
        let start = processor_seconds();
        let output = blocks.iter().fold(x.clone(), |x, block| block.forward(x, heads));
        drop(normalized(&last, output).sum().backward());
        1e3 * (processor_seconds() - start)
    };
    pass();
    let end = Instant::now() + duration;
    let mut times = vec![pass()];
    while Instant::now() < end {
        times.push(pass());
    }
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Returns the processor time of this thread.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
