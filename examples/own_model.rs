//! One's own Burn model on any number of workers. The model knows nothing of it.
//!
//! One worker: `cargo run --release --example own_model`. Two: `target/release/kolo launch --nproc 2 --
//! target/release/examples/own_model`. Both print the same losses, to the last bit.

use std::error::Error;
use std::process::ExitCode;

use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor, activation::relu};
use kolo::{
    Config, Ddp, Group, Loss, Rank, Settings,
    data::{self, Loader, Part},
    image_tensors, optimizer,
};

// Not needed, but Burn on a CPU is much faster with it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Module, Debug)]
struct Mlp {
    hidden: Linear,
    out: Linear,
}

impl Mlp {
    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        self.out.forward(relu(self.hidden.forward(images.flatten(1, 3))))
    }
}

fn main() -> ExitCode {
    kolo::main(run)
}

fn run() -> Result<(), Box<dyn Error + Send + Sync>> {
    let device = Device::flex().autodiff();
    device.seed(0);
    let dataset = data::open("fashion-mnist-small")?;
    let model = Mlp {
        hidden: LinearConfig::new(28 * 28, 128).init(&device),
        out: LinearConfig::new(128, 10).init(&device),
    };

    // The job: every step has 4 shards of 32 images, whoever works on them.
    let config = Config { shards: Some(4), ..Config::default() };
    let sgd = optimizer::named("sgd", &Settings::default().with("momentum", 0.9))?;
    let mut ddp = Ddp::new(Group::from_env()?, model, &config, sgd)?;
    let sampler = ddp.sampler(dataset.samples(Part::Train), 32, 0)?;
    let mut loader = Loader::new(dataset, sampler.clone());
    let criterion = CrossEntropyLossConfig::new().init(&device);

    for epoch in 0..3 {
        for step in 0..sampler.steps() {
            for shard in loader.step(epoch, step, ddp.shards()) {
                let Some(batch) = shard?.batch else {
                    ddp.skip_shard()?; // a short last batch leaves some without samples
                    continue;
                };
                let count = batch.len();
                let (images, labels) = image_tensors(batch, &device);
                let loss = criterion.forward(ddp.model().forward(images), labels);
                ddp.backward(Loss::mean(loss, count))?; // gradients are on their way before it returns
            }
            let report = ddp.step(0.05)?;
            if ddp.rank() == Rank(0) && step % 20 == 0 {
                println!("epoch {epoch} step {step}: loss {}", report.loss);
            }
        }
    }
    Ok(())
}
