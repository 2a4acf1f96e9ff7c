//! The bare loop on workers that may come and go: all that an elastic job asks of one's own loop.
//!
//! `target/release/kolo launch --nproc 3 -- target/release/examples/elastic_loop`, and `kill -9` one of the
//! workers: the others go on, another one takes its place, and the job ends in the same weights. With
//! SIGTERM a worker leaves after the step that it is at. An argument says for how many epochs.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor, activation::relu};
use kolo::data::{self, ImageDataSet, Loader, Part};
use kolo::ddp::Change;
use kolo::elastic::Member;
use kolo::train::cross_entropy;
use kolo::{Config, Ddp, Group, Rank, Settings, image_tensors, optimizer};

const SHARDS: usize = 4;

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
    let model = Mlp {
        hidden: LinearConfig::new(28 * 28, 64).init(&device),
        out: LinearConfig::new(64, 10).init(&device),
    };
    let config = Config { shards: Some(SHARDS), ..Config::default() };
    let sgd = optimizer::named("sgd", &Settings::default().with("momentum", 0.9))?;
    // Started by `kolo launch` it is a member of an elastic job, else one of workers that stay.
    let mut ddp = match Member::from_env()? {
        Some(member) => Ddp::elastic(member, model, &config, sgd)?,
        None => Ddp::new(Group::from_env()?, model, &config, sgd)?,
    };
    let dataset = data::open("fashion-mnist-small")?;
    let sampler = ddp.sampler(dataset.samples(Part::Train), 32, 0)?;
    let mut loader = Loader::new(dataset, sampler.clone());

    let epochs: usize = match std::env::args().nth(1) {
        Some(text) => {
            text.parse().map_err(|_| kolo::Failure::input(format!("{text}: give a number of epochs")))?
        }
        None => 3,
    };
    let total = epochs * sampler.steps();

    let leaving = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, leaving.clone())?;

    // What comes next follows from the job's steps alone: whoever comes later begins there, and what a death
    // has undone is done again.
    loop {
        if leaving.load(Ordering::Relaxed) {
            ddp.leave();
        }
        match advance(&mut ddp, &mut loader, total, &device) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            // Another worker's death: goes on with those that are left. Any other error comes back.
            Err(error) => ddp.recover(error)?,
        }
    }
}

/// The next step, or the end of the job. Whether there is more to do.
fn advance(
    ddp: &mut Ddp<Mlp>,
    loader: &mut Loader<dyn ImageDataSet>,
    total: usize,
    device: &Device,
) -> Result<bool, kolo::Error> {
    let (step, speaks) = (ddp.steps() as usize, ddp.rank() == Rank(0));
    if step == total {
        // Waits for the last step's updates.
        let hash = ddp.weights_sha256()?;
        // Nobody goes while another may still need its gradients.
        ddp.group().barrier()?;
        if speaks {
            println!("weights {hash}");
        }
        return Ok(false);
    }
    for shard in loader.at(step as u64, ddp.shards()) {
        let Some(images) = shard.map_err(|error| kolo::Error::Binding(error.into()))?.batch else {
            ddp.skip_shard()?;
            continue;
        };
        let (images, labels) = image_tensors(images, device);
        let loss = cross_entropy(ddp.model().forward(images), labels);
        ddp.backward(loss)?;
    }
    let report = ddp.step(0.05)?;
    if speaks && step % 20 == 0 {
        println!("step {step}: loss {}", report.loss);
    }
    Ok(!matches!(report.change, Change::Left | Change::AllLeft))
}
