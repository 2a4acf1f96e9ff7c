//! The networks as a whole: their parameters, and that a seed decides them.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};

use super::*;

/// Shape and values of every float of a module by its path.
#[derive(Default)]
struct Floats {
    path: Vec<String>,
    found: BTreeMap<String, (Vec<usize>, Vec<u32>)>,
}

impl ModuleVisitor for Floats {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        let bits = value.to_data().iter::<f32>().map(f32::to_bits).collect();
        self.found.insert(self.path.join("."), (value.dims().to_vec(), bits));
    }
}

fn floats(model: &ResNet) -> BTreeMap<String, (Vec<usize>, Vec<u32>)> {
    let mut floats = Floats::default();
    model.visit(&mut floats);
    floats.found
}

fn config(name: &str, channels: usize, classes: usize) -> ResNetConfig {
    (find(name).unwrap().config)(channels, classes)
}

#[test]
fn parameter_counts_are_torchvisions() {
    for (name, count) in [("resnet18", 11_689_512), ("resnet34", 21_797_672), ("resnet50", 25_557_032)] {
        let model = config(name, 3, 1000).init(0, &Device::flex());
        let floats = floats(&model);
        let trained = floats.iter().filter(|(path, _)| !path.contains("running_"));
        assert_eq!(trained.map(|(_, (_, bits))| bits.len()).sum::<usize>(), count, "{name}");
    }
}

#[test]
fn paths_become_torchvisions_keys() {
    let keys = |name| -> BTreeMap<String, Vec<usize>> {
        let found = floats(&config(name, 3, 10).init(0, &Device::flex()));
        found.into_iter().map(|(path, (shape, _))| (torchvision_name(&path).name, shape)).collect()
    };
    let keys18 = keys("resnet18");
    for (key, shape) in [
        ("conv1.weight", vec![64, 3, 7, 7]),
        ("bn1.weight", vec![64]),
        ("layer1.1.conv2.weight", vec![64, 64, 3, 3]),
        ("layer2.0.downsample.0.weight", vec![128, 64, 1, 1]),
        ("layer2.0.downsample.1.bias", vec![128]),
        ("layer4.1.bn2.bias", vec![512]),
        ("fc.weight", vec![512, 10]),
        ("fc.bias", vec![10]),
    ] {
        assert_eq!(keys18.get(key), Some(&shape), "{key} in {:?}", keys18.keys());
    }
    let keys50 = keys("resnet50");
    assert_eq!(keys50["layer1.0.downsample.0.weight"], [256, 64, 1, 1]);
    assert_eq!(keys50["layer3.0.conv3.weight"], [1024, 256, 1, 1]);
}

#[test]
fn a_bottleneck_halves_the_image_in_its_3x3() {
    let model = config("resnet50", 3, 10).init(0, &Device::flex());
    let block = &model.layer2[0];
    assert_eq!((block.conv1.stride, block.conv2.stride), ([1, 1], [2, 2]));
}

#[test]
fn the_same_seed_gives_the_same_bits_whatever_was_drawn_before() {
    let device = Device::flex();
    let first = floats(&config("small", 1, 10).init(5, &device));
    device.seed(1);
    let _drawn = Tensor::<1>::random([3], burn::tensor::Distribution::Default, &device).into_data();
    let elsewhere =
        std::thread::spawn(|| floats(&config("small", 1, 10).init(5, &Device::flex().autodiff())));
    assert_eq!(first, floats(&config("small", 1, 10).init(5, &device)));
    assert_eq!(first, elsewhere.join().unwrap());
    assert_ne!(first, floats(&config("small", 1, 10).init(6, &device)));
}

#[test]
fn initial_values_have_torchvisions_spread() {
    let found = floats(&config("resnet18", 3, 10).init(1, &Device::flex()));
    let values =
        |path: &str| found[path].1.iter().map(|bits| f64::from(f32::from_bits(*bits))).collect::<Vec<_>>();
    let conv = values("layer3.1.conv1.weight");
    let variance = conv.iter().map(|v| v * v).sum::<f64>() / conv.len() as f64;
    let expected = 2.0 / (256.0 * 9.0);
    assert!((variance / expected - 1.0).abs() < 0.01, "{variance} {expected}");
    let bound = 1.0 / 512f64.sqrt();
    let largest = values("fc.weight").into_iter().fold(0.0f64, |max, v| max.max(v.abs()));
    assert!(largest <= bound && largest > 0.99 * bound, "{largest} {bound}");
    assert!(values("layer2.0.bn1.gamma").iter().all(|&v| v == 1.0));
    assert!(values("layer2.0.bn1.beta").iter().all(|&v| v == 0.0));
}

#[test]
fn every_model_gives_a_score_for_each_class_and_a_gradient_for_each_parameter() {
    let device = Device::flex().autodiff();
    for entry in MODELS {
        let model = (entry.config)(1, 7).init(0, &device);
        let scores = model.forward(Tensor::ones([2, 1, 32, 32], &device));
        assert_eq!(scores.dims(), [2, 7], "{}", entry.name);
        let gradients = scores.sum().backward();
        for weight in [&model.conv1.weight, &model.layer2[0].conv2.weight] {
            assert!(weight.val().grad(&gradients).is_some(), "{}", entry.name);
        }
    }
}
