//! A plain training loop of Burn: the same network and layers as `kolo bench step`, Burn's own AdamW, and
//! nothing of Kolo's. Prints the median of a step's seconds.
//!
//! `cargo run --release --manifest-path bench/burn/Cargo.toml -- [STEPS]`

use std::time::Instant;

use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{Device, Int, Tensor, TensorData};
use kolo_models::{BlockKind, ResNetConfig, Stem};

// As `kolo` has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BATCH: usize = 32;
const CLASSES: usize = 10;
const WARM_UP: usize = 5;

fn main() {
    let steps = std::env::args().nth(1).map_or(40, |text| text.parse().expect("a number of steps"));
    let device = Device::flex().autodiff();
    let config = ResNetConfig {
        stem: Stem::ImageNet,
        block: BlockKind::Basic,
        depths: [2, 2, 2, 2],
        widths: [64, 128, 256, 512],
        channels: 3,
        classes: CLASSES,
    };
    let mut model = config.init(0, &device);
    let mut optimizer = AdamWConfig::new().with_weight_decay(1e-4).init();
    let images: Vec<f32> = (0..BATCH * 3 * 32 * 32).map(|i| (i as f32 * 0.37).sin()).collect();
    let labels: Vec<i32> = (0..BATCH as i32).map(|i| i % CLASSES as i32).collect();
    let mut times = Vec::new();
    for step in 0..WARM_UP + steps {
        let begun = Instant::now();
        let images = Tensor::<4>::from_data(TensorData::new(images.clone(), [BATCH, 3, 32, 32]), &device);
        let labels = Tensor::<1, Int>::from_data(TensorData::new(labels.clone(), [BATCH]), &device);
        let loss = CrossEntropyLossConfig::new().init(&device).forward(model.forward(images), labels);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(5e-4, model, gradients);
        if step >= WARM_UP {
            times.push(begun.elapsed().as_secs_f64());
        }
    }
    times.sort_by(f64::total_cmp);
    println!("{}", times[times.len() / 2]);
}
