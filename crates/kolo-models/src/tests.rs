//! Tests of whole networks: their parameters, and their dependence on the seed alone.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor, TensorData};
use kolo_burn::{Ddp, DropoutKey};
use kolo_comm::Group;
use kolo_data::{Batch, SampleShape};
use kolo_recipe::OptimizerChoice;
use kolo_weights::torchvision_name;

use super::*;
use crate::stepper::DdpStepper;

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

/// Shape of every float of a module by its path.
#[derive(Default)]
struct Shapes {
    path: Vec<String>,
    found: BTreeMap<String, Vec<usize>>,
}

impl ModuleVisitor for Shapes {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.found.insert(self.path.join("."), param.dims().to_vec());
    }
}

fn floats(model: &impl Module) -> BTreeMap<String, (Vec<usize>, Vec<u32>)> {
    let mut floats = Floats::default();
    model.visit(&mut floats);
    floats.found
}

fn shapes(model: &impl Module) -> BTreeMap<String, Vec<usize>> {
    let mut shapes = Shapes::default();
    model.visit(&mut shapes);
    shapes.found
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
    let samples = SampleShape { channels, height: 32, width: 32, classes, is_text: false };
    Blueprint::plain(seed, samples, device)
}

/// One build of each network has its number of parameters, its keys and its strides.
#[test]
fn parameters_keys_and_strides_are_torchvisions() {
    let [keys18, _, keys50] = [("resnet18", 11_689_512), ("resnet34", 21_797_672), ("resnet50", 25_557_032)]
        .map(|(name, count)| {
            let model = build(name, 3, 1000, 0, &Device::flex());
            let shapes = shapes(&model);
            let trained = shapes.iter().filter(|(path, _)| !path.contains("running_"));
            assert_eq!(
                trained.map(|(_, shape)| shape.iter().product::<usize>()).sum::<usize>(),
                count,
                "{name}"
            );
            if name == "resnet50" {
                // A bottleneck halves the image in its 3x3.
                let block = &model.layer2[0];
                assert_eq!((block.conv1.stride, block.conv2.stride), ([1, 1], [2, 2]));
            }
            let keys = shapes.into_iter().map(|(path, shape)| (torchvision_name(&path).name, shape));
            keys.collect::<BTreeMap<_, _>>()
        });
    for (key, shape) in [
        ("conv1.weight", vec![64, 3, 7, 7]),
        ("bn1.weight", vec![64]),
        ("layer1.1.conv2.weight", vec![64, 64, 3, 3]),
        ("layer2.0.downsample.0.weight", vec![128, 64, 1, 1]),
        ("layer2.0.downsample.1.bias", vec![128]),
        ("layer4.1.bn2.bias", vec![512]),
        ("fc.weight", vec![512, 1000]),
        ("fc.bias", vec![1000]),
    ] {
        assert_eq!(keys18.get(key), Some(&shape), "{key} in {:?}", keys18.keys());
    }
    assert_eq!(keys50["layer1.0.downsample.0.weight"], [256, 64, 1, 1]);
    assert_eq!(keys50["layer3.0.conv3.weight"], [1024, 256, 1, 1]);
}

/// Returns a VGG with few channels, and with the names and order of the real one's layers.
fn narrow_vgg(seed: u64, device: &Device) -> Vgg {
    let config = VggConfig { widths: [2, 4, 6, 8, 10], hidden: 12, ..VggConfig::vgg16(3, 5) };
    config.init(seed, device)
}

#[test]
fn a_vgg_has_torchvisions_keys_and_shapes() {
    let found: BTreeMap<String, Vec<usize>> = shapes(&narrow_vgg(0, &Device::flex()))
        .into_iter()
        .map(|(path, shape)| (torchvision_name(&path).name, shape))
        .collect();
    // The numbers in `torchvision.models.vgg16().state_dict()`.
    let convolutions = [0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28].map(|n| format!("features.{n}"));
    let linear = [0, 3, 6].map(|n| format!("classifier.{n}"));
    let layers: Vec<&String> = convolutions.iter().chain(&linear).collect();
    assert_eq!(found.len(), 2 * layers.len(), "{:?}", found.keys());
    for layer in layers {
        assert!(
            found.contains_key(&format!("{layer}.weight")) && found.contains_key(&format!("{layer}.bias"))
        );
    }
    assert_eq!(found["features.5.weight"], [4, 2, 3, 3]);
    assert_eq!(found["features.28.bias"], [10]);
    // Transposed there.
    assert_eq!(found["classifier.0.weight"], [10 * 7 * 7, 12]);
    assert_eq!(found["classifier.6.weight"], [12, 5]);
}

#[test]
fn vgg16_has_as_many_parameters_as_torchvisions() {
    let VggConfig { depths, widths, hidden, channels, classes } = VggConfig::vgg16(3, 1000);
    let (mut parameters, mut input) = (0, channels);
    for (depth, width) in depths.into_iter().zip(widths) {
        for _ in 0..depth {
            parameters += 9 * input * width + width;
            input = width;
        }
    }
    for (input, output) in [(input * 7 * 7, hidden), (hidden, hidden), (hidden, classes)] {
        parameters += input * output + output;
    }
    assert_eq!(parameters, 138_357_544);
}

#[test]
fn a_vgg_takes_images_of_any_size_from_the_smallest_and_drops_by_its_key() {
    let device = Device::flex();
    let model = narrow_vgg(3, &device);
    for size in [VggConfig::SMALLEST_IMAGE, 45] {
        let values: Vec<f32> = (0..2 * 3 * size * size).map(|i| ((i * 37) % 101) as f32 / 101.0).collect();
        let images = Tensor::from_data(TensorData::new(values, [2, 3, size, size]), &device);
        let scores = |model: &Vgg, key: Option<&DropoutKey>| {
            let scores = model.forward(images.clone(), key);
            assert_eq!(scores.dims(), [2, 5]);
            scores.into_data().iter::<f32>().map(f32::to_bits).collect::<Vec<u32>>()
        };
        let plain = scores(&model, None);
        let key = |step| DropoutKey { seed: 0, epoch: 0, step, shard: 0 };
        // The model drops nothing by default.
        assert_eq!(scores(&model, Some(&key(0))), plain);
        let dropping = model.clone().with_dropout(0.5);
        let first = scores(&dropping, Some(&key(0)));
        assert_eq!(scores(&dropping, Some(&key(0))), first);
        assert!(first != plain && scores(&dropping, Some(&key(1))) != first);
    }
}

#[test]
fn vgg_begins_with_torchvisions_spread() {
    let found = floats(&narrow_vgg(1, &Device::flex()));
    let deviation = |path: &str| {
        let values: Vec<f64> = found[path].1.iter().map(|bits| f64::from(f32::from_bits(*bits))).collect();
        (values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64).sqrt()
    };
    assert!((deviation("classifier.0.weight") / 0.01 - 1.0).abs() < 0.05);
    let expected = (2.0 / (10.0 * 9.0f64)).sqrt();
    assert!((deviation("features.28.weight") / expected - 1.0).abs() < 0.1);
    assert_eq!([deviation("features.0.bias"), deviation("classifier.3.bias")], [0.0; 2]);
}

#[test]
fn mlp_has_the_papers_parameters() {
    let samples = SampleShape { channels: 1, height: 28, width: 28, classes: 10, is_text: false };
    let device = Device::flex();
    let model = mlp::mlp(&Blueprint { samples, ..blueprint(1, 10, 0, &device) });
    let count: usize = shapes(&model).values().map(|shape| shape.iter().product::<usize>()).sum();
    assert_eq!(count, 784 * 300 + 300 + 300 * 100 + 100 + 100 * 10 + 10);
}

#[test]
fn with_zero_gamma_each_block_hands_on_its_input() {
    let device = Device::flex();
    let blueprint = Blueprint { zero_gamma: true, ..blueprint(1, 10, 0, &device) };
    let built = floats(&resnets::small(&blueprint));
    // Few channels: the same blocks as those of resnet18 and resnet50.
    let narrow = |block| ResNetConfig { widths: [4, 6, 8, 10], block, ..ResNetConfig::resnet18(1, 10) };
    for (config, last) in [
        (ResNetConfig::small(1, 10), ".bn2.gamma"),
        (narrow(BlockKind::Basic), ".bn2.gamma"),
        (narrow(BlockKind::Bottleneck), ".bn3.gamma"),
    ] {
        let zero = floats(&ResNetConfig { zero_gamma: true, ..config }.init(0, &device));
        assert!(config != ResNetConfig::small(1, 10) || zero == built, "the option reaches the network");
        for (path, (_, bits)) in zero.iter().filter(|(path, _)| path.ends_with("gamma")) {
            let expected = if path.ends_with(last) { 0.0f32 } else { 1.0 };
            assert!(bits.iter().all(|bits| *bits == expected.to_bits()), "{path}");
        }
        let plain = floats(&config.init(0, &device));
        assert!(plain.iter().all(|(path, value)| path.ends_with(last) || zero[path] == *value));
    }
    let x = Tensor::<4>::from_data(TensorData::new(vec![0.5f32; 64 * 9], [1, 64, 3, 3]), &device);
    let init = init::Init { seed: 0, device: &device };
    let shape = block::BlockShape { input: 64, width: 64, stride: 1 };
    let block = Block::new(BlockKind::Basic, shape, "a", &init);
    let handed_on = |block: &Block| {
        let out: Vec<f32> = block.forward(x.clone()).into_data().iter().collect();
        out.iter().all(|value| *value == 0.5)
    };
    assert!(!handed_on(&block) && handed_on(&block.with_zero_gamma(&init)));
}

#[test]
fn a_small_stem_keeps_the_image() {
    let device = Device::flex();
    let [none, imagenet, small] = [None, Some(Stem::ImageNet), Some(Stem::Small)]
        .map(|stem| resnets::resnet18(&Blueprint { stem, ..blueprint(3, 10, 0, &device) }));
    for model in [&none, &imagenet] {
        assert_eq!((model.conv1.weight.dims(), model.conv1.stride), ([64, 3, 7, 7], [2, 2]));
        assert!(model.maxpool.is_some());
    }
    assert_eq!((small.conv1.weight.dims(), small.conv1.stride), ([64, 3, 3, 3], [1, 1]));
    assert!(small.maxpool.is_none());
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
    let config = kolo_ddp::Config::default();
    let sgd = || OptimizerChoice::default().build().unwrap();
    // The real vgg16 takes minutes and gigabytes here; a narrow one takes the same code path.
    for model in MODELS.iter().filter(|model| model.name() != "vgg16" && !model.traits().reads_text) {
        let stepper = model.stepper(Group::alone(), &blueprint(1, 7, 0, &device), &config, sgd()).unwrap();
        takes_a_step_that_moves_each_parameter(stepper, model.name(), 1);
    }
    let ddp = Ddp::new(Group::alone(), narrow_vgg(0, &device), &config, sgd()).unwrap();
    takes_a_step_that_moves_each_parameter(Box::new(DdpStepper { ddp, device, loss: Vgg::loss }), "vgg16", 3);
}

fn takes_a_step_that_moves_each_parameter(mut stepper: Box<dyn Stepper>, name: &str, channels: usize) {
    let values = |stepper: &dyn Stepper| {
        let mut values = Vec::new();
        stepper.with_replica(&mut |replica| values = replica.values().unwrap().to_vec());
        values
    };
    let before = values(&*stepper);
    let pixel = |sample: usize, i: usize| ((i * 31 + sample * 17) % 97) as f32 / 97.0 - 0.5;
    let image = |sample: usize| (0..channels * 32 * 32).map(move |i| pixel(sample, i));
    let (images, shape) = ((0..2).flat_map(image).collect(), [2, channels, 32, 32]);
    let report = stepper.step(Batch { images, labels: vec![0, 4], shape }, 0.1).unwrap();
    assert!(report.loss.is_finite() && report.count == 2.0, "{name}");
    let after = values(&*stepper);
    stepper.with_replica(&mut |replica| {
        for span in replica.layout().spans() {
            assert!(before[span.range()] != after[span.range()], "{name}: {}", span.spec.name);
        }
    });
}
