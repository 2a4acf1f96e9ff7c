//! A model of seven tensors whose groups of parameters are stepped in different ways.

use std::sync::Arc;

use kolo_comm::Group;
use kolo_ddp::optimizer::{self, Optimizer, Settings};
use kolo_ddp::table::Choice;
use kolo_ddp::{
    BucketCaps, Config, Error, Kind, Layout, ParamGroup, ParamSpec, Replica, SpanId, TensorClass,
};

use super::{noise, noises, pass};

pub const SHARDS: usize = 4;
pub const RATE: f64 = 0.02;

/// Names and shapes. With small buckets `block.weight` and `table.weight` are cut into several.
pub const TENSORS: [(&str, &[usize]); 7] = [
    ("embed.weight", &[40, 30]),
    ("block.weight", &[200, 150]),
    ("block.norm.gamma", &[300]),
    ("block.bias", &[301]),
    ("table.weight", &[170, 170]),
    ("head.weight", &[10, 77]),
    ("head.bias", &[10]),
];

pub fn layout() -> Layout {
    let kind = Kind::Parameter { decay: true };
    Layout::new(TENSORS.map(|(name, shape)| ParamSpec::new(name, shape.to_vec(), kind)).to_vec())
}

/// Settings of each optimizer of the table, and others for `block.*`, with which every part of its rule has an
/// effect.
pub fn choices() -> Vec<(Choice, Settings)> {
    let adaptive = || Settings::default().with("weight_decay", 0.4).with("beta1", 0.5).with("epsilon", 1e-3);
    let plain = || Settings::default().with("weight_decay", 0.4).with("momentum", 0.5);
    let sgd = |momentum: f64| Choice::new("sgd").with("momentum", momentum).with("weight_decay", 0.05);
    let nesterov = plain().with("nesterov", true);
    let lars = || Choice::new("lars").with("trust_coefficient", 0.5).with("weight_decay", 0.05);
    let lion = Settings::default().with("weight_decay", 0.4).with("beta1", 0.5);
    let choices = vec![
        (sgd(0.9), nesterov.clone()),
        // Momentum in a group only.
        (sgd(0.0), nesterov),
        (Choice::new("adamw").with("weight_decay", 0.05), adaptive()),
        (Choice::new("adam").with("weight_decay", 0.05), adaptive()),
        (Choice::new("lamb").with("weight_decay", 0.05), adaptive()),
        (Choice::new("lamb"), adaptive().with("trust_ratio", false)),
        (lars(), plain()),
        (lars(), plain().with("trust_ratio", false)),
        (Choice::new("muon").with("weight_decay", 0.05), plain().with("nesterov", false)),
        (Choice::new("muon").with("match_rms_adamw", false), adaptive().with("adamw", true)),
        (Choice::new("lion").with("weight_decay", 0.05), lion),
    ];
    for entry in optimizer::OPTIMIZERS {
        assert!(choices.iter().any(|(choice, _)| choice.name == entry.name), "{} is missing", entry.name);
    }
    choices
}

pub fn groups(of_block: &Settings) -> Vec<ParamGroup> {
    let block = ParamGroup { settings: of_block.clone(), ..ParamGroup::of(["block.*"]) };
    vec![
        block.with_lr_scale(0.1),
        ParamGroup::of(["head.*"]).with_lr_scale(10.0),
        ParamGroup::of([TensorClass::Embedding]).frozen(),
        ParamGroup::without_decay([TensorClass::Norm, TensorClass::Bias]),
    ]
}

pub fn config(groups: Vec<ParamGroup>, mib: f64) -> Config {
    Config { shards: Some(SHARDS), caps: Some(BucketCaps::of_mib(mib)), groups, ..Config::default() }
}

pub fn replica(group: Group, config: &Config, choice: &Choice) -> Replica {
    let optimizer = optimizer::named(&choice.name, &choice.settings).unwrap();
    replica_of(group, |i| 1.5 * noise(1, i), config, optimizer).unwrap()
}

pub fn replica_of(
    group: Group,
    value: impl Fn(usize) -> f32,
    config: &Config,
    optimizer: impl Optimizer,
) -> Result<Replica, Error> {
    let layout = layout();
    let specs = layout.spans().iter().map(|span| span.spec.clone()).collect();
    Replica::new(Arc::new(group), specs, (0..layout.len()).map(value).collect(), config, optimizer)
}

/// Gradient of a shard: of ½(θ − target)², whose target differs by shard and step.
pub fn gradient<T: From<f32> + std::ops::Sub<Output = T>>(
    value: T,
    index: usize,
    step: u64,
    shard: usize,
) -> T {
    value - T::from(noises(1 + shard + step as usize % 3)[index])
}

pub fn steps(replica: &mut Replica, steps: std::ops::Range<u64>) {
    let layout = replica.layout().clone();
    for step in steps {
        for shard in replica.shards() {
            let values: Vec<Vec<f32>> =
                (0..TENSORS.len()).map(|n| replica.latest(SpanId(n)).to_vec()).collect();
            let gradients = values.iter().enumerate().rev().map(|(n, values)| {
                let indices = layout.span(SpanId(n)).offset..;
                let of = |(value, index): (&f32, usize)| gradient(*value, index, step, shard);
                (n, values.iter().zip(indices).map(of).collect::<Vec<f32>>())
            });
            pass(replica, 1.0, 1.0, gradients).unwrap();
        }
        replica.step(RATE).unwrap();
    }
}
