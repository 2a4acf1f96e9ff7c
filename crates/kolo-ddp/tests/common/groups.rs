//! A model of seven tensors whose groups of parameters are stepped in different ways.

use std::sync::Arc;

use kolo_comm::{Group, Options, threads};
use kolo_ddp::optimizer::{self, Optimizer, Settings};
use kolo_ddp::table::Choice;
use kolo_ddp::{
    BucketCaps, Config, Error, Kind, Layout, ParamGroup, ParamSpec, Replica, SpanId, TensorClass,
};

use super::{bits, noise, noises, pass};

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

/// The tensors and their first values.
pub fn model() -> (Vec<ParamSpec>, Vec<f32>) {
    let layout = layout();
    let specs = layout.spans().iter().map(|span| span.spec.clone()).collect();
    (specs, (0..layout.len()).map(|i| 1.5 * noise(1, i)).collect())
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
    replica_with(group, config, optimizer::named(&choice.name, &choice.settings).unwrap())
}

pub fn replica_with(group: Group, config: &Config, optimizer: impl Optimizer) -> Replica {
    replica_of(group, |i| 1.5 * noise(1, i), config, optimizer).unwrap()
}

pub fn replica_of(
    group: Group,
    value: impl Fn(usize) -> f32,
    config: &Config,
    optimizer: impl Optimizer,
) -> Result<Replica, Error> {
    let (specs, values) = model();
    let values = (0..values.len()).map(value).collect();
    Replica::new(Arc::new(group), specs, values, config, optimizer)
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

/// Runs the passes of a step, each of which uses tensor after tensor and then has the last one's gradient
/// first.
pub fn passes(replica: &mut Replica) {
    let (step, layout) = (replica.steps(), replica.layout().clone());
    for shard in replica.shards() {
        let values: Vec<Vec<f32>> = (0..TENSORS.len()).map(|n| replica.latest(SpanId(n)).to_vec()).collect();
        let gradients = values.iter().enumerate().rev().map(|(n, values)| {
            let indices = layout.span(SpanId(n)).offset..;
            let of = |(value, index): (&f32, usize)| gradient(*value, index, step, shard);
            (n, values.iter().zip(indices).map(of).collect::<Vec<f32>>())
        });
        pass(replica, 1.0, 1.0, gradients).unwrap();
    }
}

/// Trains up to so many steps.
pub fn train(replica: &mut Replica, to: u64) {
    while replica.steps() < to {
        passes(replica);
        replica.step(RATE).unwrap();
    }
}

/// The bits of one rank that trains up to so many steps undisturbed.
pub fn alone(config: &Config, optimizer: impl Optimizer, to: u64) -> Vec<u32> {
    let mut replica = replica_with(Group::alone(), config, optimizer);
    train(&mut replica, to);
    bits(&mut replica)
}

/// Runs `world` ranks, and after them those in `stay` with newcomers. Each gets its groups of both
/// generations; those of the second return something.
pub fn two_generations<R: Send>(
    world: usize,
    stay: &[usize],
    newcomers: usize,
    run: impl Fn(Option<Group>, Option<Group>) -> Option<R> + Sync,
) -> Vec<R> {
    let groups = |ranks| threads::groups(ranks, &Options::default()).unwrap().into_iter();
    let mut next = groups(stay.len() + newcomers);
    let mut second: Vec<Option<Group>> = (0..world).map(|_| None).collect();
    stay.iter().for_each(|rank| second[*rank] = next.next());
    let stay = groups(world).map(Some).zip(second);
    std::thread::scope(|scope| {
        let run = &run;
        let start = |(first, second)| scope.spawn(move || run(first, second));
        let ranks: Vec<_> = stay.chain(next.map(|group| (None, Some(group)))).map(start).collect();
        ranks.into_iter().filter_map(|rank| rank.join().unwrap()).collect()
    })
}
