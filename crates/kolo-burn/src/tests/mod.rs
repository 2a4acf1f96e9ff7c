//! Promises of [`Ddp`](crate::Ddp), tested on real networks.

mod cross_shard;
mod frozen;
mod islands;
mod language_model;
pub(crate) mod marks;
mod memory_order;
mod precision;
mod residual_net;
mod running_statistics;
mod tied;
mod untracked;
mod values;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{Autodiff, Flex};
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::tanh;
use burn::tensor::{Device, Int, Tensor, TensorData};
use kolo_comm::{Group, threads, tree};
use kolo_ddp::binding::{Inventory, Which};
use kolo_ddp::optimizer::{self, Optimizer, Settings};
use kolo_ddp::{BucketCaps, Config, Kind, Replica, Statistics, checkpoint};

use self::residual_net::ResidualNet;
use crate::tensor_list::TensorList;
use crate::{Ddp, DropoutKey, Loss, tensors};

const WIDTH: usize = 48;

/// Network that uses `shared` twice and `unused` never.
#[derive(Module, Debug)]
struct Net {
    first: Linear,
    shared: Linear,
    unused: Linear,
    last: Linear,
}

impl Net {
    fn new(device: &Device) -> Self {
        let mut layers = (0..4).map(|layer| {
            let mut linear = LinearConfig::new(WIDTH, WIDTH).with_bias(true).init(device);
            // Avoid Burn's global random state: other tests draw from it at the same time.
            let values: Vec<f32> = (0..WIDTH * WIDTH).map(|i| noise(layer, i) * 0.3).collect();
            let values = Tensor::<2>::from_data(TensorData::new(values, [WIDTH, WIDTH]), device);
            linear.weight = linear.weight.map(|_| values.require_grad());
            linear.bias = linear.bias.map(|bias| bias.map(|old| Tensor::zeros_like(&old).require_grad()));
            linear
        });
        let mut next = || layers.next().unwrap();
        Net { first: next(), shared: next(), unused: next(), last: next() }
    }

    /// Runs the forward pass, with `between` after the first layer.
    fn forward(&self, x: Tensor<2>, between: impl Fn(Tensor<2>) -> Tensor<2>) -> Tensor<2> {
        let x = between(tanh(self.first.forward(x)));
        let x = tanh(self.shared.forward(x));
        let x = tanh(self.shared.forward(x));
        self.last.forward(x)
    }
}

pub(super) fn noise(seed: usize, index: usize) -> f32 {
    ((seed * 7_919 + index * 104_729 + 13) as f32 * 0.37).sin()
}

fn inputs(samples: &[usize], device: &Device) -> Tensor<2> {
    let values: Vec<f32> = samples.iter().flat_map(|&s| (0..WIDTH).map(move |i| noise(s + 50, i))).collect();
    Tensor::from_data(TensorData::new(values, [samples.len(), WIDTH]), device)
}

fn device() -> Device {
    Device::flex().autodiff()
}

fn tiny_buckets(shards: usize) -> Config {
    Config { shards: Some(shards), caps: Some(BucketCaps { first: 4096, other: 4096 }), ..Config::default() }
}

/// Identity whose backward pass waits until the first bucket is reduced.
#[derive(Debug)]
struct Gate;

#[derive(Clone)]
struct Waiter(Arc<Mutex<Replica>>);

kolo_comm::opaque_debug!(Waiter);

impl Backward<Flex, 1> for Gate {
    type State = Waiter;

    fn backward(self, ops: Ops<Waiter, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let until = Instant::now() + Duration::from_secs(30);
        while !ops.state.0.lock().unwrap().is_back(0) {
            assert!(Instant::now() < until, "no bucket was reduced while the backward pass went on");
            std::thread::yield_now();
        }
        let gradient = gradients.consume::<Flex>(&ops.node);
        if let Some(parent) = &ops.parents[0] {
            gradients.register::<Flex>(parent.id, gradient);
        }
    }
}

fn gate(x: Tensor<2>, replica: &Arc<Mutex<Replica>>) -> Tensor<2> {
    type Backend = Autodiff<Flex, NoCheckpointing>;
    let (primitive, node) = x.try_into_primitive::<Backend>().unwrap().into_parts();
    let gated = match Gate.prepare::<NoCheckpointing>([node]).compute_bound().stateful() {
        OpsKind::Tracked(prepared) => prepared.finish(Waiter(replica.clone()), primitive),
        OpsKind::UnTracked(prepared) => prepared.finish(primitive),
    };
    Tensor::from_primitive::<Backend>(gated)
}

pub(super) fn inventory_of<M: Module>(module: &M) -> Inventory {
    tensors::inventory(module, Which::All, &TensorList::of(module)).unwrap()
}

/// Tests the order of events, not their time. The gate holds back the first layer's gradient until both ranks
/// have reduced a bucket of the last layers. If reductions waited for the end of the pass, or if the hook
/// reported gradients late, the gate would never open.
#[test]
fn buckets_are_reduced_while_the_backward_pass_goes_on() {
    threads::spawn(2, |group| {
        let device = device();
        let mut ddp =
            Ddp::new(group, Net::new(&device), &tiny_buckets(2), sgd(&Settings::default())).unwrap();
        for step in 0..3 {
            let handle = ddp.shared_replica();
            // Buckets are in the order of readiness from the second step on. (Burn computes the gradient of a
            // bias at the very end of the pass, even for the last layer.)
            let between = |x| if step == 0 { x } else { gate(x, &handle) };
            let out = ddp.model().forward(inputs(&[step, step + 1], &device), between);
            ddp.backward(Loss::sum(out.powi_scalar(2).sum(), 2)).unwrap();
            assert!(ddp.step(0.01).unwrap().traffic.started_early >= 1);
        }
    })
    .unwrap();
}

fn sgd(settings: &Settings) -> Box<dyn Optimizer> {
    optimizer::named("sgd", settings).unwrap()
}

/// Returns the gradient of a step, from the optimizer's velocity after it.
fn gradient(group: Group, samples: usize) -> Vec<f32> {
    let (world, rank, device) = (group.world_size(), group.rank(), device());
    let settings = Settings::default().with("momentum", 0.9);
    let mut ddp = Ddp::new(group, Net::new(&device), &tiny_buckets(world), sgd(&settings)).unwrap();
    let own: Vec<usize> = tree::share(samples, world, rank).collect();
    let out = ddp.model().forward(inputs(&own, &device), |x| x);
    ddp.backward(Loss::sum(out.powi_scalar(2).sum(), own.len())).unwrap();
    ddp.step(0.01).unwrap();
    velocity(&ddp)
}

/// Returns the optimizer's velocity, which after one step is the gradient.
pub(super) fn velocity<M: Module>(ddp: &Ddp<M>) -> Vec<f32> {
    let folder = tempfile::tempdir().unwrap();
    let position = checkpoint::Position { step: 1, epoch: 0, step_in_epoch: 1, notes: ().into() };
    let path = ddp.with_replica(|replica| checkpoint::save(folder.path(), replica, &position)).unwrap();
    let bytes = std::fs::read(path.join("optimizer.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let names: Vec<String> = ddp.layout().spans().iter().map(|s| s.spec.name.clone()).collect();
    let values = |name: &String| tensors.tensor(&format!("velocity/{name}")).unwrap().data().to_vec();
    let words = names.iter().flat_map(values).collect::<Vec<u8>>();
    words.chunks_exact(4).map(|w| f32::from_le_bytes([w[0], w[1], w[2], w[3]])).collect()
}

#[test]
fn gradients_are_those_of_the_whole_batch() {
    const SAMPLES: usize = 14;
    let whole = gradient(Group::alone(), SAMPLES);
    assert!(whole.iter().any(|g| *g != 0.0));
    for world in 2..=4 {
        for split in threads::spawn(world, |group| gradient(group, SAMPLES)).unwrap() {
            let square = |x: f64| x * x;
            let error: f64 =
                split.iter().zip(&whole).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
            let size: f64 = whole.iter().map(|b| square(f64::from(*b))).sum();
            let relative = (error / size).sqrt();
            assert!(relative < 1e-6, "{world} workers: relative error {relative}");
        }
    }
}

/// Runs one shard of a step of a residual network, with dropout.
fn residual_shard(ddp: &mut Ddp<ResidualNet>, step: usize, shard: usize) {
    let device = device();
    let pixels: Vec<f32> = (0..3 * 144).map(|i| noise(step * 4 + shard, i)).collect();
    let images = Tensor::from_data(TensorData::new(pixels, [3, 1, 12, 12]), &device);
    let labels = Tensor::<1, Int>::from_data([shard as i32, 1, 2], &device);
    let key = DropoutKey { seed: 5, epoch: 0, step, shard };
    let scores = ddp.model().forward_training(images, &key);
    let loss = CrossEntropyLossConfig::new().init(&device).forward(scores, labels);
    ddp.backward(Loss::mean(loss, 3)).unwrap();
}

fn residual(group: Group, statistics: Statistics) -> Ddp<ResidualNet> {
    let model = ResidualNet::new(0.2, &device());
    let config = Config { shards: Some(4), statistics, verify_every: 3, ..Config::default() };
    let settings = Settings::default().with("momentum", 0.9).with("weight_decay", 1e-3);
    Ddp::new(group, model, &config, sgd(&settings)).unwrap()
}

/// A residual network with dropout and batch normalization has the same bits for any number of ranks. Every
/// other step is followed directly by the next forward pass.
#[test]
fn a_residual_network_has_the_same_bits_on_any_number_of_ranks() {
    let train = |group: Group| -> Vec<Vec<u32>> {
        let mut ddp = residual(group, Statistics::PerShard);
        let mut states = Vec::new();
        for step in 0..8 {
            for shard in ddp.shards() {
                residual_shard(&mut ddp, step, shard);
            }
            ddp.step(0.05).unwrap();
            if step % 2 == 1 {
                let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect();
                states.push(ddp.with_replica(|replica| bits(replica.values().unwrap())));
            }
        }
        // The model has the replica's values, including running statistics.
        let inventory = inventory_of::<ResidualNet>(ddp.model());
        ddp.with_replica(|replica| assert_eq!(inventory.values, replica.values().unwrap()));
        states
    };
    let alone = train(Group::alone());
    assert_ne!(alone[0], alone[1]);
    for world in [2, 3, 4] {
        for states in threads::spawn(world, train).unwrap() {
            assert!(states == alone, "{world} ranks");
        }
    }
}

/// If each rank keeps its own running statistics, the trained parameters are still those of the job, and the
/// model has the replica's values.
#[test]
fn local_statistics_are_each_ranks_own() {
    let train = |group: Group, statistics| -> [Vec<u32>; 2] {
        let mut ddp = residual(group, statistics);
        for step in 0..3 {
            for shard in ddp.shards() {
                residual_shard(&mut ddp, step, shard);
            }
            ddp.step(0.05).unwrap();
        }
        let values = inventory_of::<ResidualNet>(ddp.model()).values;
        ddp.with_replica(|replica| assert_eq!(values, replica.values().unwrap()));
        [true, false].map(|statistic| {
            let spans = ddp.layout().spans().iter();
            let spans = spans.filter(|span| (span.spec.kind == Kind::Statistic) == statistic);
            spans.flat_map(|span| values[span.range()].iter().map(|x| x.to_bits())).collect()
        })
    };
    let [of_job, parameters] = train(Group::alone(), Statistics::PerShard);
    let ranks = threads::spawn(2, |group| train(group, Statistics::Local)).unwrap();
    assert!(ranks.iter().all(|rank| rank[1] == parameters));
    assert!(ranks[0][0] != ranks[1][0] && ranks[0][0] != of_job);
}

/// A parameter's transformation for files survives steps.
#[test]
fn parameters_keep_their_mappers_and_wait_until_they_are_used() {
    let device = device();
    let mut net = Net::new(&device);
    net.last.weight = net.last.weight.save_mapper(|weight| weight.mul_scalar(2.0));
    let mut ddp = Ddp::new(Group::alone(), net, &tiny_buckets(1), sgd(&Settings::default())).unwrap();
    for step in 0..7 {
        let out = ddp.model().forward(inputs(&[step], &device), |x| x);
        ddp.backward(Loss::sum(out.powi_scalar(2).sum(), 1)).unwrap();
        ddp.step(0.01).unwrap();
    }
    let waiting = ddp.shared_replica().lock().unwrap().outstanding();
    assert!(waiting > 1 && !ddp.model().last.weight.is_initialized());
    let weight = ddp.model().last.weight.val();
    assert!(
        ddp.shared_replica().lock().unwrap().outstanding() < waiting
            && !ddp.model().first.weight.is_initialized()
    );
    let saved = ddp.model().last.weight.transform_for_save().val();
    saved.into_data().assert_eq(&weight.mul_scalar(2.0).into_data(), true);
    let model = ddp.into_model().unwrap().into_module();
    assert!(model.first.weight.is_initialized() && model.last.weight.is_initialized());
}

#[test]
fn a_model_without_autodiff_is_told() {
    let model = Net::new(&device()).valid();
    let result = Ddp::new(Group::alone(), model, &Config::default(), sgd(&Settings::default()));
    let error = result.err().unwrap().to_string();
    assert!(error.contains("autodiff"), "{error}");
    let plain = LinearConfig::new(3, 3).init(&Device::flex());
    let result = Ddp::new(Group::alone(), plain, &Config::default(), sgd(&Settings::default()));
    let error = result.err().unwrap().to_string();
    assert!(error.contains("records no gradients") && error.contains("Device::flex().autodiff()"), "{error}");
}

#[test]
fn a_model_of_which_nothing_is_trained_is_told() {
    let frozen = Net::new(&device()).no_grad();
    let result = Ddp::new(Group::alone(), frozen, &Config::default(), sgd(&Settings::default()));
    let error = result.err().unwrap().to_string();
    assert!(error.contains("nothing to train"), "{error}");
}

/// The loss may come from another model, or from the model's copy for evaluation.
#[test]
fn a_loss_without_autodiff_is_told() {
    let net = Net::new(&device());
    let mut ddp = Ddp::new(Group::alone(), net, &tiny_buckets(1), sgd(&Settings::default())).unwrap();
    let loss = inputs(&[1], &Device::flex()).sum();
    let error = ddp.backward(Loss::sum(loss, 1)).unwrap_err().to_string();
    assert!(error.contains("autodiff"), "{error}");
}
