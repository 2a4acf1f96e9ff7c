//! A perceptron, and what tests of values share.

use candle_core::{Result, Tensor};
use candle_nn::{Linear, Module, VarBuilder, VarMap, linear};
use kolo_candle::{CandleModel, Ddp};
use kolo_comm::Group;
use kolo_ddp::Config;
use kolo_ddp::optimizer::{self, Optimizer, Settings};

use super::{SHARDS, tensor};

pub const INPUTS: usize = 7;

/// Two layers.
#[derive(Debug)]
pub struct Mlp {
    pub hidden: Linear,
    pub out: Linear,
}

impl Mlp {
    pub fn new(builder: VarBuilder) -> Result<Self> {
        Ok(Mlp { hidden: linear(INPUTS, 16, builder.pp("hidden"))?, out: linear(16, 3, builder.pp("out"))? })
    }

    /// Sum of squared errors of samples.
    pub fn error(&self, samples: &Tensor) -> Result<Tensor> {
        let targets = samples.narrow(1, 0, 3)?.sin()?;
        let outputs = self.out.forward(&self.hidden.forward(samples)?.tanh()?)?;
        (outputs - targets)?.sqr()?.sum_all()
    }
}

/// Samples of a shard; each has another number of them.
pub fn samples(step: usize, shard: usize) -> Tensor {
    tensor(step * SHARDS + shard, &[1 + (step + 2 * shard) % 4, INPUTS])
}

pub fn values(vars: &VarMap, name: &str) -> Vec<f32> {
    vars.data().lock().unwrap()[name].flatten_all().unwrap().to_vec1().unwrap()
}

pub fn all(vars: &VarMap) -> Vec<f32> {
    ["hidden.weight", "hidden.bias", "out.weight", "out.bias"]
        .iter()
        .flat_map(|name| values(vars, name))
        .collect()
}

pub fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

pub fn plain_sgd() -> Box<dyn Optimizer> {
    optimizer::named("sgd", &Settings::default().with("momentum", 0.0)).unwrap()
}

pub fn one_shard() -> Config {
    Config { shards: Some(1), ..Config::default() }
}

pub fn mlp(group: Group) -> Ddp<Mlp> {
    let model = CandleModel::build(&VarMap::new(), Mlp::new).unwrap();
    Ddp::new(group, model, &one_shard(), super::sgd()).unwrap()
}
