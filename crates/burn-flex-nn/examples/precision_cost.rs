//! What computing in a lower type costs on `flex`, where it is `f32` with rounding: forward and backward pass
//! of a convolution and of a linear layer, all types in turn, the least time of each.
//!
//! `cargo run --release -p burn-flex-nn --example precision_cost`

use std::time::{Duration, Instant};

use burn::nn::Linear;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{LinearConfig, PaddingConfig2d};
use burn::tensor::{Device, Distribution, Tensor};
use burn_flex_nn::{Precision, arrange, conv2d, linear, with_precision};

// Burn's allocations are most of the noise without it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 60;

fn convolution(layer: &Conv2d, x: Tensor<4>) -> Tensor<1> {
    conv2d(layer, x).sum()
}

fn product(layer: &Linear, x: Tensor<2>) -> Tensor<1> {
    linear(layer, x).sum()
}

/// Takes the least time of each precision, all of them in turn.
fn compare(name: &str, pass: impl Fn() -> Tensor<1>) {
    let mut least = [Duration::MAX; Precision::ALL.len()];
    for _ in 0..ROUNDS {
        for (least, (_, precision)) in least.iter_mut().zip(Precision::ALL) {
            let start = Instant::now();
            let gradients = with_precision(precision, &pass).backward();
            *least = start.elapsed().min(*least);
            drop(gradients);
        }
    }
    let ms = least.map(|time| 1e3 * time.as_secs_f64());
    let ratios = ms.map(|time| format!("{time:.2} ms ({:.2})", time / ms[0]));
    println!("{name:45} f32 {}, bf16 {}, f16 {}", ratios[0], ratios[1], ratios[2]);
}

fn main() {
    let device = Device::flex().autodiff();
    for (channels, size) in [(16, 28), (64, 16), (256, 4)] {
        let config = Conv2dConfig::new([channels, channels], [3, 3]).with_bias(false);
        let layer = arrange(config.with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1)).init(&device));
        let x =
            Tensor::<4>::random([32, channels, size, size], Distribution::Default, &device).require_grad();
        let name = format!("conv2d 3x3, {channels} channels, 32 of {size}x{size}");
        compare(&name, || convolution(&layer, x.clone()));
    }
    for (rows, width) in [(1024, 128), (1024, 768)] {
        let layer = LinearConfig::new(width, 4 * width).init(&device);
        let x = Tensor::<2>::random([rows, width], Distribution::Default, &device).require_grad();
        let name = format!("linear {width} to {}, {rows} rows", 4 * width);
        compare(&name, || product(&layer, x.clone()));
    }
}
