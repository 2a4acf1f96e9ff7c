//! The networks as a whole: their parameters, and that a seed decides them.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};
use kolo_comm::Group;
use kolo_data::{Batch, SampleShape};

use super::image_model::Blueprint;
use super::*;
use crate::config::OptimizerChoice;
use crate::stepper::Stepper;

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

fn build(name: &str, channels: usize, classes: usize, seed: u64, device: &Device) -> ResNet {
    let builders = [
        ("small", resnets::small as fn(&Blueprint<'_>) -> ResNet),
        ("resnet18", resnets::resnet18),
        ("resnet34", resnets::resnet34),
        ("resnet50", resnets::resnet50),
    ];
    let (_, build) = builders.into_iter().find(|(known, _)| *known == name).unwrap();
    build(&blueprint(channels, classes, seed, device))
}

fn blueprint(channels: usize, classes: usize, seed: u64, device: &Device) -> Blueprint<'_> {
    let samples = SampleShape { channels, height: 32, width: 32, classes };
    Blueprint { seed, samples, dropout: 0.0, device }
}

#[test]
fn parameter_counts_are_torchvisions() {
    for (name, count) in [("resnet18", 11_689_512), ("resnet34", 21_797_672), ("resnet50", 25_557_032)] {
        let model = build(name, 3, 1000, 0, &Device::flex());
        let floats = floats(&model);
        let trained = floats.iter().filter(|(path, _)| !path.contains("running_"));
        assert_eq!(trained.map(|(_, (_, bits))| bits.len()).sum::<usize>(), count, "{name}");
    }
}

#[test]
fn paths_become_torchvisions_keys() {
    let keys = |name| -> BTreeMap<String, Vec<usize>> {
        let found = floats(&build(name, 3, 10, 0, &Device::flex()));
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
    let model = build("resnet50", 3, 10, 0, &Device::flex());
    let block = &model.layer2[0];
    assert_eq!((block.conv1.stride, block.conv2.stride), ([1, 1], [2, 2]));
}

#[test]
fn the_same_seed_gives_the_same_bits_whatever_was_drawn_before() {
    let device = Device::flex();
    let first = floats(&build("small", 1, 10, 5, &device));
    device.seed(1);
    let _drawn = Tensor::<1>::random([3], burn::tensor::Distribution::Default, &device).into_data();
    let elsewhere = std::thread::spawn(|| floats(&build("small", 1, 10, 5, &Device::flex().autodiff())));
    assert_eq!(first, floats(&build("small", 1, 10, 5, &device)));
    assert_eq!(first, elsewhere.join().unwrap());
    assert_ne!(first, floats(&build("small", 1, 10, 6, &device)));
}

#[test]
fn initial_values_have_torchvisions_spread() {
    let found = floats(&build("resnet18", 3, 10, 1, &Device::flex()));
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
fn every_model_of_the_table_takes_steps_that_move_each_parameter() {
    let device = Device::flex().autodiff();
    let image = |sample: usize| (0..32 * 32).map(move |i| ((i * 31 + sample * 17) % 97) as f32 / 97.0 - 0.5);
    for model in MODELS {
        let blueprint = blueprint(1, 7, 0, &device);
        let config = kolo_ddp::Config::default();
        let mut stepper = model
            .stepper(Group::alone(), &blueprint, &config, OptimizerChoice::default().build().unwrap())
            .unwrap();
        let values = |stepper: &dyn Stepper| {
            let mut values = Vec::new();
            stepper.with_replica(&mut |replica| values = replica.values().unwrap().to_vec());
            values
        };
        let before = values(&*stepper);
        let batch =
            Batch { images: (0..2).flat_map(image).collect(), labels: vec![0, 6], shape: [2, 1, 32, 32] };
        let report = stepper.step(batch, 0.1).unwrap();
        assert!(report.loss.is_finite() && report.count == 2.0, "{}", model.name());
        let after = values(&*stepper);
        stepper.with_replica(&mut |replica| {
            for span in replica.layout().spans() {
                assert!(before[span.range()] != after[span.range()], "{}: {}", model.name(), span.spec.name);
            }
        });
    }
}
