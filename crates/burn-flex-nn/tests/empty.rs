//! Tensors without elements in every kernel: outputs and gradients have the right shapes, and an empty sum is
//! 0.

use burn::module::Param;
use burn::nn::conv::Conv2d;
use burn::nn::pool::MaxPool2dConfig;
use burn::nn::{BatchNormConfig, PaddingConfig2d};
use burn::tensor::{Device, Tensor};
use burn_flex_nn::{
    Attention, batch_norm, batch_norm_add_relu, batch_norm_relu, conv2d, cross_entropy, fork, gelu,
    global_average_pool, layer_norm, matmul, max_pool2d, self_attention,
};

fn device() -> Device {
    Device::flex().autodiff()
}

fn zeros<const D: usize>(dims: [usize; D]) -> Tensor<D> {
    Tensor::zeros(dims, &device()).require_grad()
}

/// Asserts that output and gradients have these shapes, and returns the output's values.
fn passes<const D: usize, const E: usize>(
    output: Tensor<D>,
    dims: [usize; D],
    inputs: &[Tensor<E>],
) -> Vec<f32> {
    assert_eq!(output.dims(), dims);
    let gradients = output.clone().sum().backward();
    for input in inputs {
        let gradient = input.grad(&gradients).expect("it is used");
        assert_eq!(gradient.dims(), input.dims());
        assert!(gradient.into_data().iter::<f32>().all(|value| value.is_finite()));
    }
    output.into_data().iter().collect()
}

#[test]
fn convolutions() {
    for [samples, input, output] in [[0, 3, 5], [2, 0, 5], [2, 3, 0], [0, 0, 0], [0, 0, 5], [2, 0, 0]] {
        let layer = Conv2d {
            weight: Param::from_tensor(zeros([output, input, 3, 3])),
            bias: Some(Param::from_tensor(Tensor::ones([output], &device()))),
            stride: [1; 2],
            kernel_size: [3; 2],
            dilation: [1; 2],
            groups: 1,
            padding: PaddingConfig2d::Explicit(1, 1, 1, 1),
        };
        let x = zeros([samples, input, 4, 6]);
        let inputs = [x.clone(), layer.weight.val()];
        let values = passes(conv2d(&layer, x), [samples, output, 4, 6], &inputs);
        assert_eq!(values, vec![1.0; samples * output * 24]);
        let gradients = conv2d(&layer, zeros([samples, input, 4, 6])).sum().backward();
        let of_bias = layer.bias.as_ref().unwrap().grad(&gradients).unwrap();
        assert_eq!(
            of_bias.into_data().iter::<f32>().collect::<Vec<_>>(),
            vec![samples as f32 * 24.0; output]
        );
    }
}

#[test]
fn pooling_and_forks() {
    for [samples, channels] in [[0, 3], [2, 0], [0, 0]] {
        let x = zeros([samples, channels, 6, 6]);
        let layer = MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init();
        passes(max_pool2d(&layer, x.clone()), [samples, channels, 3, 3], std::slice::from_ref(&x));
        assert_eq!(global_average_pool(x.clone()).dims(), [samples, channels]);
        let [a, b] = fork(x.clone() * 2.0);
        passes(a + b, [samples, channels, 6, 6], &[x]);
    }
}

#[test]
fn normalizations() {
    for dims in [[0, 3, 2, 2], [2, 3, 0, 2], [0, 3, 0, 0]] {
        let layer = BatchNormConfig::new(3).init(&device());
        let x = zeros(dims);
        let inputs = std::slice::from_ref(&x);
        passes(batch_norm(&layer, x.clone()), dims, inputs);
        passes(batch_norm_relu(&layer, x.clone()), dims, inputs);
        passes(batch_norm_add_relu(&layer, x.clone(), zeros(dims)), dims, inputs);
    }
    for dims in [[0, 4], [3, 0], [0, 0]] {
        let (x, gamma, beta) = (zeros(dims), zeros([dims[1]]), zeros([dims[1]]));
        passes(layer_norm(x.clone(), gamma, Some(beta), 1e-5), dims, &[x]);
    }
}

#[test]
fn products_attention_and_units() {
    for [rows, inner, columns] in [[0, 3, 2], [2, 0, 3], [2, 3, 0], [0, 0, 0]] {
        // These are Burn's, which has no gradients for some of them.
        let product = matmul(zeros([rows, inner]), zeros([inner, columns]));
        assert_eq!(product.dims(), [rows, columns]);
        let values: Vec<f32> = product.into_data().iter().collect();
        assert_eq!(values, vec![0.0; rows * columns]);
    }
    for [batch, time, width] in [[0, 3, 4], [2, 0, 4], [2, 3, 0], [0, 0, 0]] {
        let qkv = zeros([batch, time, 3 * width]);
        let attention = Attention { heads: 2, causal: true, ..Attention::default() };
        passes(self_attention(qkv.clone(), attention), [batch, time, width], &[qkv]);
    }
    let x = zeros([3, 0]);
    passes(gelu(x.clone()), [3, 0], &[x]);
}

#[test]
fn cross_entropies() {
    for (dims, targets) in
        [([0, 4], vec![]), ([2, 0], vec![None; 2]), ([0, 0], vec![]), ([2, 3], vec![None; 2])]
    {
        let scores = zeros(dims);
        assert_eq!(passes(cross_entropy(scores.clone(), targets), [1], &[scores]), [0.0]);
    }
}
