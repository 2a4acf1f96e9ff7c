//! A small network with all features of a real one: convolution, batch normalization, a layer that is used
//! twice, and one that is never used.

#![allow(dead_code, reason = "each program of tests uses a part of it")]

pub mod mlp;

use candle_core::{Device, Result, Tensor};
use candle_nn::{
    BatchNorm, Conv2d, Conv2dConfig, Linear, Module, ModuleT, VarBuilder, VarMap, batch_norm, conv2d, linear,
    loss,
};
use kolo_candle::{CandleModel, Ddp, Loss};
use kolo_comm::Group;
use kolo_ddp::optimizer::{self, Settings};
use kolo_ddp::{Config, Kind};

pub const SHARDS: usize = 4;
pub const WIDTH: usize = 24;

/// Values that are the same in every run.
pub fn noise(seed: usize, index: usize) -> f32 {
    ((seed * 7_919 + index * 104_729 + 13) as f32 * 0.37).sin()
}

pub fn tensor(seed: usize, shape: &[usize]) -> Tensor {
    let values: Vec<f32> = (0..shape.iter().product()).map(|i| noise(seed, i)).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

/// Network that uses `shared` twice and `unused` never.
pub struct Net {
    pub conv: Conv2d,
    pub norm: BatchNorm,
    pub first: Linear,
    pub shared: Linear,
    pub unused: Linear,
    pub last: Linear,
}

impl Net {
    pub fn new(builder: VarBuilder) -> Result<Self> {
        Ok(Net {
            conv: conv2d(1, 3, 3, Conv2dConfig::default(), builder.pp("conv"))?,
            norm: batch_norm(3, 1e-5, builder.pp("norm"))?,
            first: linear(3 * 6 * 6, WIDTH, builder.pp("first"))?,
            shared: linear(WIDTH, WIDTH, builder.pp("shared"))?,
            unused: linear(WIDTH, WIDTH, builder.pp("unused"))?,
            last: linear(WIDTH, 5, builder.pp("last"))?,
        })
    }

    pub fn scores(&self, images: &Tensor) -> Result<Tensor> {
        let x = self.norm.forward_t(&self.conv.forward(images)?, true)?.relu()?;
        let x = self.first.forward(&x.flatten_from(1)?)?.tanh()?;
        let x = self.shared.forward(&self.shared.forward(&x)?.tanh()?)?.tanh()?;
        self.last.forward(&x)
    }

    /// The loss of one shard of a step.
    pub fn loss(&self, step: usize, shard: usize) -> Result<Loss> {
        let count = samples(step, shard);
        let images = tensor(step * SHARDS + shard, &[count, 1, 8, 8]);
        let labels: Vec<u32> = (0..count as u32).map(|i| (i + shard as u32) % 5).collect();
        let labels = Tensor::from_vec(labels, count, &Device::Cpu)?;
        Loss::mean(loss::cross_entropy(&self.scores(&images)?, &labels)?, count)
    }
}

/// Samples of a shard; their number differs, and one shard has none.
pub fn samples(step: usize, shard: usize) -> usize {
    if (step, shard) == (2, 1) { 0 } else { 2 + (step + shard) % 3 }
}

pub fn ddp(group: Group, config: &Config, optimizer: Box<dyn optimizer::Optimizer>) -> (Ddp<Net>, VarMap) {
    let vars = VarMap::new();
    let model = CandleModel::build(&vars, Net::new).unwrap();
    (Ddp::new(group, model, config, optimizer).unwrap(), vars)
}

pub fn config() -> Config {
    Config { shards: Some(SHARDS), verify_every: 3, ..Config::default() }
}

pub fn sgd() -> Box<dyn optimizer::Optimizer> {
    optimizer::named("sgd", &Settings::default().with("momentum", 0.9)).unwrap()
}

/// Runs one step, shard by shard.
pub fn step(ddp: &mut Ddp<Net>, rate: f64) -> kolo_ddp::StepReport {
    let step = ddp.steps() as usize;
    for shard in ddp.shards() {
        if samples(step, shard) == 0 {
            ddp.skip_shard().unwrap();
        } else {
            let loss = ddp.model().loss(step, shard).unwrap();
            ddp.backward(loss).unwrap();
        }
    }
    ddp.step(rate).unwrap()
}

/// Bits of all values of the replica; the model and the map have the same ones.
pub fn bits(ddp: &Ddp<Net>) -> Vec<u32> {
    let values = ddp.with_replica(|replica| replica.values().unwrap().to_vec());
    let entries = ddp.model().vars().data().lock().unwrap();
    for span in ddp.layout().spans() {
        let var = entries[&span.spec.name].flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(var, values[span.range()], "`{}` of the map", span.spec.name);
    }
    let used = ddp.model().last.weight().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let span = ddp.layout().spans().iter().find(|span| span.spec.name == "last.weight").unwrap();
    assert_eq!(used, values[span.range()], "`last.weight` of the model");
    assert!(ddp.layout().spans().iter().any(|span| span.spec.kind == Kind::Statistic));
    values.iter().map(|value| value.to_bits()).collect()
}
