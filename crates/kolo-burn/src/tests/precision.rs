//! Mixed precision on a real network: parameters stay `f32`, all ranks skip an overflow of `f16`, and the
//! bits are the same on any number of ranks.

use burn::module::{Module, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::tensor::activation::tanh;
use burn::tensor::{Tensor, TensorData, f16};
use burn_flex_nn::conv2d;
use kolo_comm::{Group, threads};
use kolo_ddp::checkpoint::{self, Position};
use kolo_ddp::optimizer;
use kolo_ddp::{Config, LossScale, LossScaling};

use super::marks::Events;
use super::{Net, device, inputs, noise, tiny_buckets};
use crate::{Ddp, Loss, Precision, linear, matmul, with_precision};

const SHARDS: usize = 4;
const STEPS: u64 = 8;
/// Step in which the loss of shard 1 is a thousand times as large.
const LARGE: u64 = 3;
const SCALING: LossScaling = LossScaling { initial: 1024.0, growth: 2.0, backoff: 0.5, growth_interval: 4 };

fn ddp(group: Group, precision: Precision) -> Ddp<Net> {
    let scaling = (precision == Precision::F16).then_some(SCALING);
    let config = Config { loss_scaling: scaling, ..tiny_buckets(SHARDS) };
    Ddp::new(group, Net::new(&device()), &config, optimizer::named("adamw", &Default::default()).unwrap())
        .unwrap()
}

fn forward(net: &Net, x: Tensor<2>) -> Tensor<2> {
    let x = tanh(linear(&net.first, x));
    let x = tanh(linear(&net.shared, x));
    linear(&net.last, tanh(linear(&net.shared, x)))
}

/// Runs these steps; returns all losses, and the steps that were skipped.
fn train(ddp: &mut Ddp<Net>, precision: Precision, steps: std::ops::Range<u64>) -> (Vec<f64>, Vec<u64>) {
    let (mut losses, mut skipped) = (Vec::new(), Vec::new());
    for step in steps {
        for shard in ddp.shards() {
            let x = inputs(&[shard, shard + SHARDS], &device());
            let times = if precision == Precision::F16 && (step, shard) == (LARGE, 1) { 1000.0 } else { 1.0 };
            let out = with_precision(precision, || forward(ddp.model(), x));
            ddp.backward(Loss::sum(out.powi_scalar(2).sum().mul_scalar(times), 2)).unwrap();
        }
        let report = ddp.step(0.01).unwrap();
        losses.push(report.loss);
        skipped.extend(report.skipped.then_some(step));
    }
    (losses, skipped)
}

fn bits(ddp: &Ddp<Net>) -> Vec<u32> {
    ddp.with_replica(|replica| replica.values().unwrap().iter().map(|value| value.to_bits()).collect())
}

#[test]
fn an_overflow_of_f16_is_skipped_by_all_ranks_also_of_a_run_that_is_resumed() {
    let whole = |group| {
        let mut ddp = ddp(group, Precision::F16);
        let (_, skipped) = train(&mut ddp, Precision::F16, 0..STEPS);
        assert_eq!(skipped, [LARGE]);
        let end = LossScale { scale: 1024.0, clean_steps: 0, skipped_steps: 1 };
        assert_eq!(ddp.with_replica(|replica| replica.loss_scaling()), end);
        bits(&ddp)
    };
    let expected = whole(Group::alone());
    let is_f16 = |bits: &u32| f16::from_f32(f32::from_bits(*bits)).to_f32().to_bits() == *bits;
    assert!(!expected.iter().all(is_f16), "the parameters are f32");
    for world in [2, 3] {
        assert!(threads::spawn(world, whole).unwrap().iter().all(|bits| *bits == expected), "{world} ranks");
    }
    for cut in [LARGE, LARGE + 1, LARGE + 3] {
        let folder = tempfile::tempdir().unwrap();
        let mut first = ddp(Group::alone(), Precision::F16);
        train(&mut first, Precision::F16, 0..cut);
        let position = Position { step: cut, epoch: 0, step_in_epoch: 0, notes: ().into() };
        first.with_replica(|replica| checkpoint::save(folder.path(), replica, &position)).unwrap();
        threads::spawn(2, |group| {
            let mut ddp = ddp(group, Precision::F16);
            assert_eq!(ddp.resume(folder.path()).unwrap().unwrap().position.step, cut);
            train(&mut ddp, Precision::F16, cut..STEPS);
            assert!(bits(&ddp) == expected, "cut after {cut}");
        })
        .unwrap();
    }
}

/// Without overflow, each precision learns about equally well, and has its own bits on any number of ranks.
#[test]
fn bf16_learns_as_f32_does_in_the_same_bits_on_any_number_of_ranks() {
    let run = |precision| {
        move |group: Group| {
            let mut ddp = ddp(group, precision);
            let (losses, skipped) = train(&mut ddp, precision, 0..30);
            assert!(skipped.is_empty());
            (losses, bits(&ddp))
        }
    };
    let (f32_losses, f32_bits) = run(Precision::F32)(Group::alone());
    let (losses, expected) = run(Precision::Bf16)(Group::alone());
    assert!(expected != f32_bits);
    assert!(f32_losses[29] < 0.2 * f32_losses[0], "{f32_losses:?}");
    for (step, (loss, f32_loss)) in losses.iter().zip(&f32_losses).enumerate() {
        assert!((loss - f32_loss).abs() < 0.05 * f32_loss, "step {step}: {loss}, in f32 {f32_loss}");
    }
    for world in [2, 3] {
        for (_, bits) in threads::spawn(world, run(Precision::Bf16)).unwrap() {
            assert!(bits == expected, "{world} ranks");
        }
    }
}

/// A layer of each kind that rounds its parameters.
#[derive(Module, Debug)]
struct Rounding {
    convolution: Conv2d,
    linear: burn::nn::Linear,
    matrix: Param<Tensor<2>>,
}

impl Rounding {
    fn new() -> Self {
        fn param<const D: usize>(seed: usize, dims: [usize; D]) -> Param<Tensor<D>> {
            let values: Vec<f32> = (0..dims.iter().product()).map(|index| noise(seed, index)).collect();
            Param::from_data(TensorData::new(values, dims), &device())
        }
        let layer = Conv2dConfig::new([4, 4], [3, 3]).init(&device());
        let convolution = Conv2d { weight: param(1, [4, 4, 3, 3]), bias: Some(param(2, [4])), ..layer };
        let linear = burn::nn::Linear { weight: param(3, [36, 6]), bias: Some(param(4, [6])) };
        Rounding { convolution, linear, matrix: param(5, [6, 5]) }
    }

    fn loss(&self, events: &Events) -> Tensor<1> {
        let pixels: Vec<f32> = (0..200).map(|index| noise(6, index)).collect();
        let images = Tensor::<4>::from_data(TensorData::new(pixels, [2, 4, 5, 5]), &device());
        let x = conv2d(&self.convolution, images).reshape([2, 36]);
        let x = tanh(linear(&self.linear, events.mark(x, 1)));
        matmul(events.mark(x, 2), self.matrix.val()).powi_scalar(2).sum()
    }
}

/// Nothing of the backward pass of a layer runs before the gradients of the layers behind it are with the
/// hook: none waits in memory for the end of the pass, and their reduction is hidden.
#[test]
fn rounded_gradients_come_layer_by_layer() {
    for precision in [Precision::F32, Precision::Bf16, Precision::F16] {
        let (net, events) = (Rounding::new(), Events::default());
        events.backward(&net, with_precision(precision, || net.loss(&events)));
        let mut order = events.spans();
        // The two gradients of one layer come together.
        order.split_mut(Option::is_none).for_each(<[_]>::sort);
        assert_eq!(
            order,
            [Some(4), None, Some(2), Some(3), None, Some(0), Some(1)],
            "{precision:?}: matrix, linear layer, convolution"
        );
    }
}

/// Each gradient is the nearest number of the type to the product of rounded factors.
#[test]
fn the_gradient_of_a_rounded_matrix_is_that_of_plain_lines() {
    let to_bf16 = |value: f32| burn::tensor::bf16::from_f32(value).to_f32();
    let of = |seed, count: usize| (0..count).map(move |index| noise(seed, index)).collect::<Vec<f32>>();
    let (rows, width, columns) = (3, 5, 2);
    let (x, weight) = (of(1, rows * width), of(2, width * columns));
    let tensor = |values: &[f32], dims: [usize; 2]| {
        Tensor::<2>::from_data(TensorData::new(values.to_vec(), dims), &device())
    };
    let leaf = tensor(&weight, [width, columns]).require_grad();
    let factors = of(3, rows * columns);
    let product = with_precision(Precision::Bf16, || matmul(tensor(&x, [rows, width]), leaf.clone()));
    let gradients = (product * tensor(&factors, [rows, columns])).sum().backward();
    let found: Vec<f32> = leaf.grad(&gradients).unwrap().into_data().iter().collect();
    for (index, found) in found.into_iter().enumerate() {
        let (row, column) = (index / columns, index % columns);
        let term = |sample: usize| {
            f64::from(to_bf16(x[sample * width + row]))
                * f64::from(to_bf16(factors[sample * columns + column]))
        };
        let sum: f64 = (0..rows).map(term).sum();
        // Three products are exact in `f32`, and their sum nearly so.
        assert_eq!(found.to_bits(), to_bf16(sum as f32).to_bits(), "element {index}: {sum}");
    }
}
