//! Parameters in several places of a module.

use burn::module::{Param, ParamId};

use super::*;
use crate::{tied, with_values};

/// Two layers with a common weight, and one with its own.
#[derive(Module, Debug)]
struct Tied {
    first: Linear,
    own: Linear,
    second: Linear,
}

impl Tied {
    fn new(device: &Device) -> Self {
        let Net { first, last, shared, .. } = Net::new(device);
        let mut second = shared;
        second.weight = first.weight.clone();
        Tied { first, own: last, second }
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let x = tanh(self.first.forward(x));
        self.second.forward(tanh(self.own.forward(x)))
    }

    fn loss(&self, step: usize) -> Tensor<1> {
        self.forward(inputs(&[step, step + 1], &device())).powi_scalar(2).sum()
    }
}

fn leaf(tensor: Tensor<2>) -> Tensor<2> {
    Tensor::from_data(tensor.into_data(), &device()).require_grad()
}

fn bits<const D: usize>(tensor: Tensor<D>) -> Vec<u32> {
    tensor.into_data().iter::<f32>().map(f32::to_bits).collect()
}

/// Runs plain gradient descent in Burn alone: the gradient of a parameter is the sum over its places.
fn expected(steps: usize) -> (Vec<f32>, Vec<f32>) {
    let mut net = Tied::new(&device());
    for step in 0..steps {
        let gradients = net.loss(step).div_scalar(2.0).backward();
        let step = |layer: &Linear| {
            let weight = layer.weight.val();
            let gradient = Tensor::from_inner(weight.grad(&gradients).unwrap());
            leaf(weight - gradient.mul_scalar(0.01))
        };
        let (shared, own) = (step(&net.first), step(&net.own));
        net.first.weight = net.first.weight.map(|_| shared);
        net.second.weight = net.first.weight.clone();
        net.own.weight = net.own.weight.map(|_| own);
        let zeros = |layer: Linear| {
            let bias = layer.bias.map(|bias| bias.map(|old| Tensor::zeros_like(&old).require_grad()));
            Linear { bias, ..layer }
        };
        let Tied { first, own, second } = net;
        net = Tied { first: zeros(first), own: zeros(own), second: zeros(second) };
    }
    let values = |layer: &Linear| layer.weight.val().into_data().iter().collect();
    (values(&net.first), values(&net.own))
}

/// Returns a configuration that keeps biases at zero, which keeps the reference above short.
fn config(shards: usize) -> Config {
    let frozen = "*.bias:lr_scale=0".parse().unwrap();
    Config { groups: vec![frozen], ..tiny_buckets(shards) }
}

#[test]
fn a_tied_parameter_stays_one_and_takes_the_gradients_of_all_its_places() {
    const STEPS: usize = 4;
    let train = |group: Group| {
        let mut ddp = Ddp::new(group, Tied::new(&device()), &config(1), sgd(&Settings::default())).unwrap();
        let names: Vec<String> = ddp.layout().spans().iter().map(|span| span.spec.name.clone()).collect();
        assert_eq!(names, ["first.weight", "first.bias", "own.weight", "own.bias", "second.bias"]);
        let told = ddp.take_warnings();
        assert!(
            ddp.rank().0 > 0
                || told.iter().any(|told| told.to_string().contains("`second.weight` is the same parameter")),
            "{told:?}"
        );
        for step in 0..STEPS {
            for _ in ddp.shards() {
                let loss = ddp.model().loss(step);
                ddp.backward(Loss::sum(loss, 2)).unwrap();
            }
            ddp.step(0.01).unwrap();
        }
        let model = ddp.into_model().unwrap().into_module();
        assert_eq!(bits(model.first.weight.val()), bits(model.second.weight.val()), "they came apart");
        let values = |layer: &Linear| layer.weight.val().into_data().iter::<f32>().collect::<Vec<_>>();
        (values(&model.first), values(&model.own))
    };
    let (alone, expected) = (train(Group::alone()), expected(STEPS));
    for (found, expected) in [(&alone.0, expected.0), (&alone.1, expected.1)] {
        let error = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(error < 1e-6, "off by {error}");
    }
    assert!(threads::spawn(2, train).unwrap().iter().all(|rank| *rank == alone));
}

/// A copy of the model for another thread has the same ties.
#[test]
fn a_copy_with_its_own_leaves_is_tied_too() {
    let model = crate::BurnModel::from(Tied::new(&device()));
    let copy = model.clone();
    let node = |layer: &Linear| crate::hook::node_of(layer.weight.val());
    assert!(node(&copy.first).is_some() && node(&copy.first) == node(&copy.second));
    assert!(node(&copy.first) != node(&model.first) && node(&copy.own) != node(&copy.first));
}

/// A record gives each place its own leaf with a common id. A copy that was trained separately has that id,
/// too.
#[test]
fn one_id_and_the_same_values_are_one_parameter_and_other_values_another() {
    let apart = |change: f32| {
        let mut net = Tied::new(&device());
        net.second.weight = net.second.weight.map(|weight| leaf(weight.add_scalar(change)));
        inventory_of(&net).specs.len()
    };
    assert_eq!((apart(0.0), apart(0.5)), (5, 6));
    let mut net = Tied::new(&device());
    net.second.weight = Param::initialized(ParamId::new(), leaf(net.first.weight.val()));
    assert_eq!(inventory_of(&net).specs.len(), 6, "another id is another parameter");
}

#[test]
fn a_tied_parameter_is_asked_for_once() {
    let net = Tied::new(&device());
    assert_eq!(tied(&net), [("second.weight".to_string(), "first.weight".to_string())]);
    let mut asked = Vec::new();
    let net = with_values(net, |name, shape, _| {
        asked.push(name.to_owned());
        Ok::<_, ()>(Some(vec![asked.len() as f32; shape.iter().product()]))
    });
    assert_eq!(asked, ["first.weight", "first.bias", "own.weight", "own.bias", "second.bias"]);
    let net = net.unwrap();
    assert_eq!(bits(net.first.weight.val()), bits(net.second.weight.val()));
    assert_eq!(inventory_of(&net).specs.len(), 5);
}
