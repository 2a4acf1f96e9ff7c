//! A candle model on workers that may come and go: one, two or three end in the same weights.
//!
//! `cargo build --release --examples`, then `kolo launch --nproc 2 -- target/release/examples/images`. After
//! `kill -9` of one worker the other goes on. An argument says for how many epochs.

use std::error::Error;

use candle_core::{Device, Tensor};
use candle_nn::{Conv2d, Conv2dConfig, Linear, Module, VarBuilder, VarMap, conv2d, linear, loss};
use kolo_candle::{CandleModel, Ddp, Loss};
use kolo_comm::{Group, Rank};
use kolo_data::{Batch, ImageDataSet, Loader, Part};
use kolo_ddp::optimizer::{self, Settings};
use kolo_ddp::{Change, Config};
use kolo_elastic::Member;

const SHARDS: usize = 4;

struct Net {
    conv: Conv2d,
    hidden: Linear,
    out: Linear,
}

impl Net {
    fn new(builder: VarBuilder) -> candle_core::Result<Self> {
        let stride = Conv2dConfig { stride: 2, ..Conv2dConfig::default() };
        Ok(Net {
            conv: conv2d(1, 6, 4, stride, builder.pp("conv"))?,
            hidden: linear(6 * 13 * 13, 48, builder.pp("hidden"))?,
            out: linear(48, 10, builder.pp("out"))?,
        })
    }

    fn loss(&self, batch: &Batch) -> candle_core::Result<Loss> {
        let images = Tensor::from_slice(&batch.images, &batch.shape[..], &Device::Cpu)?;
        let labels = Tensor::from_slice(&batch.labels, batch.len(), &Device::Cpu)?;
        let features = self.conv.forward(&images)?.relu()?.flatten_from(1)?;
        let scores = self.out.forward(&self.hidden.forward(&features)?.relu()?)?;
        Loss::mean(loss::cross_entropy(&scores, &labels)?, batch.len())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let vars = VarMap::new();
    let model = CandleModel::build(&vars, Net::new)?;
    let config = Config { shards: Some(SHARDS), ..Config::default() };
    let sgd = optimizer::named("sgd", &Settings::default().with("momentum", 0.9))?;
    // Started by `kolo launch` it is a member of an elastic job, else one of workers that stay.
    let mut ddp = match Member::from_env()? {
        Some(member) => Ddp::elastic(member, model, &config, sgd)?,
        None => Ddp::new(Group::from_env()?, model, &config, sgd)?,
    };
    let data = kolo_data::open("fashion-mnist-small")?;
    let sampler = ddp.sampler(data.samples(Part::Train), 32, 0)?;
    let mut loader = Loader::new(data, sampler.clone());
    let epochs: usize = std::env::args().nth(1).map_or(Ok(1), |text| text.parse())?;

    // What comes next follows from the job's steps alone, so a step that a death has undone is done again.
    loop {
        match advance(&mut ddp, &mut loader, epochs * sampler.steps()) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            // Another worker's death: goes on with those that are left. Any other error comes back.
            Err(error) => ddp.recover(error)?,
        }
    }
}

/// Does the next step, or ends the job. Returns true if there is more to do.
fn advance(
    ddp: &mut Ddp<Net>,
    loader: &mut Loader<dyn ImageDataSet>,
    total: usize,
) -> Result<bool, kolo_ddp::Error> {
    let (step, speaks) = (ddp.steps() as usize, ddp.rank() == Rank(0));
    if step == total {
        let hash = ddp.weights_sha256()?;
        // Nobody goes while another may still need its gradients.
        ddp.group().barrier()?;
        if speaks {
            println!("weights {hash}");
        }
        return Ok(false);
    }
    for shard in loader.at(step as u64, ddp.shards()) {
        let Some(batch) = shard.map_err(|error| kolo_ddp::Error::Binding(error.into()))?.batch else {
            ddp.skip_shard()?; // a short last batch leaves some without samples
            continue;
        };
        let loss = ddp.model().loss(&batch).map_err(|error| kolo_ddp::Error::Binding(error.into()))?;
        ddp.backward(loss)?;
    }
    let report = ddp.step(0.05)?;
    if speaks && step % 5 == 0 {
        println!("step {step}: loss {}", report.loss);
    }
    Ok(!matches!(report.change, Change::Left | Change::AllLeft))
}
