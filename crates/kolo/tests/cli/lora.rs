//! LoRA by Burn's means: the adapters are trained, and no other weight changes a bit.

use std::sync::Mutex;

use burn::module::{Lora, Module, ModuleVisitor, Param, ParamGroup};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::tanh;
use burn::tensor::{Device, Gradients, Tensor, TensorData};
use kolo::optimizer::Sgd;
use kolo::{Config, Ddp, Group, Loss, comm};

const RATE: f32 = 0.1;

#[derive(Module, Debug)]
struct Net {
    body: Linear,
    head: Linear,
}

impl Net {
    /// Two layers, of which the first one has adapters.
    fn new(device: &Device) -> Self {
        device.seed(3);
        let net =
            Net { body: LinearConfig::new(6, 5).init(device), head: LinearConfig::new(5, 2).init(device) };
        net.apply_lora(Lora::new(2, 4.0).set_param_group(ParamGroup::from_path("body.weight")))
    }

    fn loss(&self, shard: usize, device: &Device) -> Loss {
        let values: Vec<f32> = (0..24).map(|i| ((i * 7 + shard * 5) as f32 * 0.37).sin()).collect();
        let x = Tensor::<2>::from_data(TensorData::new(values, [4, 6]), device);
        Loss::mean(self.head.forward(tanh(self.body.forward(x))).add_scalar(-1.0).powi_scalar(2).mean(), 4)
    }
}

/// Name, values and, if it is trained, the gradient of each tensor.
#[derive(Default)]
struct Read<'a> {
    gradients: Option<&'a Gradients>,
    path: Vec<String>,
    found: Vec<(String, Vec<f32>, Option<Vec<f32>>)>,
}

impl ModuleVisitor for Read<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.val();
        let gradient = self.gradients.and_then(|gradients| tensor.grad(gradients));
        let values = |data: TensorData| data.iter::<f32>().collect();
        let gradient = gradient.map(|gradient| values(gradient.into_data()));
        self.found.push((self.path.join("."), values(tensor.into_data()), gradient));
    }
}

fn read(net: &Net, gradients: Option<&Gradients>) -> Vec<(String, Vec<f32>, Option<Vec<f32>>)> {
    let mut read = Read { gradients, ..Read::default() };
    net.visit(&mut read);
    read.found
}

/// Trains a network on four shards, and returns the tensors. Its first values are given, because all tests of
/// this process share a generator of random numbers.
fn trained(group: Group, net: Net, steps: usize) -> Vec<(String, Vec<f32>, Option<Vec<f32>>)> {
    let device = Device::flex().autodiff();
    let config = Config { shards: Some(4), ..Config::default() };
    let sgd = Sgd::default().build().unwrap();
    let mut ddp = Ddp::new(group, net, &config, sgd).unwrap();
    for _ in 0..steps {
        for shard in ddp.shards() {
            let loss = ddp.model().loss(shard, &device);
            ddp.backward(loss).unwrap();
        }
        ddp.step(f64::from(RATE)).unwrap();
    }
    read(ddp.model(), None)
}

#[test]
fn only_the_adapters_are_trained_and_they_are_trained_right() {
    let device = Device::flex().autodiff();
    let net = Net::new(&device);
    let losses: Vec<Gradients> =
        (0..4).map(|shard| net.loss(shard, &device).into_mean().backward()).collect();
    let of_shards: Vec<_> = losses.iter().map(|gradients| read(&net, Some(gradients))).collect();
    let found = trained(Group::alone(), net.clone(), 1);
    let mut stepped = Vec::new();
    for (n, (name, value, _)) in found.iter().enumerate() {
        let (_, before, gradient) = &of_shards[0][n];
        if gradient.is_none() {
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(value), bits(before), "{name}");
            continue;
        }
        stepped.push(name.as_str());
        for (i, value) in value.iter().enumerate() {
            let sum: f32 = of_shards.iter().map(|shard| shard[n].2.as_ref().unwrap()[i]).sum();
            assert!((value - (before[i] - RATE * sum / 4.0)).abs() < 1e-6, "{name}");
        }
    }
    assert_eq!(stepped, ["body.weight.lora.a", "body.weight.lora.b"]);
}

#[test]
fn any_number_of_workers_ends_in_the_same_bits() {
    let net = Mutex::new(Net::new(&Device::flex().autodiff()));
    let first = || net.lock().unwrap().clone();
    let alone = trained(Group::alone(), first(), 6);
    for world in [2, 3] {
        let all = comm::threads::spawn(world, |group| trained(group, first(), 6)).unwrap();
        assert!(all.iter().all(|ranks| *ranks == alone), "{world} workers");
    }
}
