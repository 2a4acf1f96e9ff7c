//! Tests of the list of lowered operations, and of their arithmetic against Burn's own.

use burn::module::Param;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::MaxPool2dConfig;
use burn::nn::{BatchNormConfig, Linear};
use burn::tensor::{Device, FloatDType, Int, Tensor, TensorData, bf16, f16};
use burn_flex_nn::precision::{OPERATIONS, precision};
use burn_flex_nn::{
    Attention, Precision, batch_norm, batch_norm_add_relu, batch_norm_relu, conv2d, cross_entropy, embedding,
    gelu, global_average_pool, layer_norm, linear, matmul, max_pool2d, self_attention,
    smoothed_cross_entropy, with_precision,
};

fn device() -> Device {
    Device::flex().autodiff()
}

fn tensor<const D: usize>(dims: [usize; D], seed: usize) -> Tensor<D> {
    let value = |i: usize| ((seed * 7_919 + i * 104_729 + 13) as f32 * 0.37).sin();
    let values: Vec<f32> = (0..dims.iter().product()).map(value).collect();
    Tensor::from_data(TensorData::new(values, dims), &device())
}

fn convolution() -> Conv2d {
    let layer = Conv2dConfig::new([5, 8], [3, 3]).with_bias(true).init(&device());
    let weight = Param::from_tensor(tensor([8, 5, 3, 3], 1));
    Conv2d { weight, bias: Some(Param::from_tensor(tensor([8], 2))), ..layer }
}

fn linear_layer() -> Linear {
    Linear { weight: Param::from_tensor(tensor([9, 7], 3)), bias: Some(Param::from_tensor(tensor([7], 4))) }
}

/// Returns the output's values, and the gradients of `inputs` for an output weighted by numbers that every
/// type can represent.
fn passes<const D: usize, const E: usize>(output: Tensor<D>, inputs: &[Tensor<E>]) -> Vec<Vec<f32>> {
    let dims = output.dims();
    let weights = (0..dims.iter().product()).map(|i: usize| (i % 7) as f32 - 2.5).collect::<Vec<f32>>();
    let weights = Tensor::<D>::from_data(TensorData::new(weights, dims), &device());
    let gradients = (output.clone() * weights).sum().backward();
    let of = |input: &Tensor<E>| input.grad(&gradients).unwrap().into_data().iter().collect();
    let mut all = vec![output.into_data().iter().collect()];
    all.extend(inputs.iter().map(of));
    all
}

/// Returns output and gradients of an operation of the list.
fn run(name: &str) -> Vec<Vec<f32>> {
    let images = tensor([3, 5, 6, 6], 5).require_grad();
    let rows = tensor([4, 9], 6).require_grad();
    let others = tensor([9, 6], 7).require_grad();
    let qkv = tensor([2, 5, 24], 8).require_grad();
    let norm = BatchNormConfig::new(5).init(&device());
    match name {
        "conv2d" => {
            let layer = convolution();
            passes(conv2d(&layer, images.clone()), &[images, layer.weight.val()])
        }
        "linear" => {
            let layer = linear_layer();
            passes(linear(&layer, rows.clone()), &[rows, layer.weight.val()])
        }
        "matmul" => passes(matmul(rows.clone(), others.clone()), &[rows, others]),
        "self_attention" => {
            let attention = Attention { heads: 2, causal: true, ..Attention::default() };
            passes(self_attention(qkv.clone(), attention), &[qkv])
        }
        "batch_norm" => passes(batch_norm(&norm, images.clone()), &[images]),
        "batch_norm_relu" => passes(batch_norm_relu(&norm, images.clone()), &[images]),
        "batch_norm_add_relu" => {
            passes(batch_norm_add_relu(&norm, images.clone(), tensor([3, 5, 6, 6], 9)), &[images])
        }
        "layer_norm" => {
            let [gamma, beta] = [1, 2].map(|seed| tensor([9], seed));
            passes(layer_norm(rows.clone(), gamma, Some(beta), 1e-5), &[rows])
        }
        "gelu" => passes(gelu(rows.clone()), &[rows]),
        "cross_entropy" => {
            passes(cross_entropy(rows.clone(), vec![Some(1), Some(0), None, Some(8)]), &[rows])
        }
        "smoothed_cross_entropy" => {
            let targets = vec![Some(1), Some(0), None, Some(8)];
            passes(smoothed_cross_entropy(rows.clone(), targets, 0.1), &[rows])
        }
        "global_average_pool" => passes(global_average_pool(images.clone()), &[images]),
        "embedding" => {
            let indices = Tensor::<2, Int>::from_ints([[1, 3, 1], [0, 2, 2]], &device());
            passes(embedding(rows.clone(), indices), &[rows])
        }
        "max_pool2d" => passes(max_pool2d(&MaxPool2dConfig::new([2, 2]).init(), images.clone()), &[images]),
        other => panic!("`{other}` is on the list, but not tried here"),
    }
}

fn nearest(value: f32, precision: Precision) -> f32 {
    match precision {
        Precision::F32 => value,
        Precision::Bf16 => bf16::from_f32(value).to_f32(),
        Precision::F16 => f16::from_f32(value).to_f32(),
    }
}

#[test]
fn the_list_says_what_is_computed_in_the_lower_type() {
    for operation in OPERATIONS {
        let name = operation.name;
        let expected = run(name);
        for (precision, most) in [(Precision::F32, 0.0), (Precision::Bf16, 0.02), (Precision::F16, 0.003)] {
            let found = with_precision(precision, || run(name));
            if !operation.is_lowered || precision == Precision::F32 {
                assert_eq!(found, expected, "{name} in {precision:?}");
                continue;
            }
            for (found, expected) in found.iter().zip(&expected) {
                let is_of_type = |value: &f32| nearest(*value, precision) == *value;
                assert!(found.iter().all(is_of_type), "{name} in {precision:?}: {found:?}");
                let size = expected.iter().fold(0f32, |most, value| most.max(value.abs()));
                let off = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
                assert!(off > 0.0 && off < most * size, "{name} in {precision:?}: {off} of {size}");
            }
        }
    }
}

/// Burn's own products of `bf16` on `flex`, through its casts and their gradients. The two differ where
/// another order of a sum rounds to the other side.
#[test]
fn products_are_those_of_burns_bf16() {
    let [a, b] = [tensor([24, 70], 1).require_grad(), tensor([70, 33], 2).require_grad()];
    let ours = with_precision(Precision::Bf16, || matmul(a.clone(), b.clone()));
    let ours = passes(ours, &[a.clone(), b.clone()]);
    let low = |x: &Tensor<2>| x.clone().cast(FloatDType::BF16);
    let burns = low(&a).matmul(low(&b)).cast(FloatDType::F32);
    let burns = passes(burns, &[a, b]);
    for (ours, burns) in ours.iter().zip(&burns) {
        let same = ours.iter().zip(burns).filter(|(ours, burns)| ours == burns).count();
        assert!(same * 100 > ours.len() * 95, "{same} of {} are the same", ours.len());
        for (ours, burns) in ours.iter().zip(burns) {
            assert!((ours - burns).abs() <= burns.abs().max(0.25) / 128.0, "{ours}, Burn's {burns}");
        }
    }
}

#[test]
fn what_is_too_large_for_f16_is_infinite_and_not_for_bf16() {
    let large = || Tensor::<2>::from_data([[300.0]], &device());
    let product = |precision| with_precision(precision, || matmul(large(), large())).into_scalar::<f32>();
    assert_eq!(product(Precision::F32), 90_000.0);
    assert_eq!(product(Precision::Bf16), 90_112.0);
    assert_eq!(product(Precision::F16), f32::INFINITY);
}

#[test]
fn a_precision_ends_with_its_scope() {
    with_precision(Precision::Bf16, || {
        assert_eq!(with_precision(Precision::F16, precision), Precision::F16);
        assert_eq!(precision(), Precision::Bf16);
        let panicked = std::panic::catch_unwind(|| with_precision(Precision::F16, || panic!("on purpose")));
        assert!(panicked.is_err() && precision() == Precision::Bf16);
        assert_eq!(std::thread::spawn(precision).join().unwrap(), Precision::F32);
    });
    assert_eq!(precision(), Precision::F32);
}
