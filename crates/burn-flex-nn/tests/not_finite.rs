//! NaN, infinities and the smallest numbers in every input and every gradient of every kernel. These kernels
//! return NaN or infinity exactly where Burn's own layers do: a kernel that swallows NaN lets a broken
//! network train on.

use burn::module::Param;
use burn::nn::conv::Conv2d;
use burn::nn::pool::MaxPool2dConfig;
use burn::nn::{BatchNorm, BatchNormConfig, Linear, PaddingConfig2d};
use burn::tensor::activation::{self, log_softmax, relu, softmax};
use burn::tensor::{Bool, Device, Gradients, Int, Tensor, TensorData, module};
use burn_flex_nn::{
    Attention, DropoutMask, batch_norm, batch_norm_add_relu, batch_norm_relu, conv2d, cross_entropy,
    embedding, fork, fork_layer_norm, gelu, gelu_tanh, global_average_pool, layer_norm, linear, linear_add,
    linear_cross_entropy, linear_gelu, linear_gelu_tanh, matmul, max_pool2d, self_attention,
    smoothed_cross_entropy, smoothed_linear_cross_entropy,
};

/// Replacements for one number.
const POISONS: [f32; 11] = [
    f32::NAN,
    // NaN with other bits, the first of them signaling.
    f32::from_bits(0x7f80_0001),
    f32::from_bits(0x7fc0_0001),
    f32::from_bits(0x7fff_ffff),
    f32::from_bits(0xffc0_0123),
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::from_bits(1),
    -1e-40,
    f32::MIN_POSITIVE,
    -0.0,
];

struct Kernel {
    name: &'static str,
    /// Lengths of its inputs, and last of its output.
    lens: &'static [usize],
    /// Calls the function, or Burn's layer.
    run: fn(&mut Pass<'_>) -> Tensor<1>,
}

/// All functions of the crate that compute, some of them in several ways.
static KERNELS: &[Kernel] = &[
    Kernel { name: "conv2d", lens: &[3 * 5 * 16, 19 * 5 * 9, 19, 3 * 19 * 16], run: convolution },
    Kernel { name: "conv2d", lens: &[2 * 8 * 25, 10 * 4 * 9, 10, 2 * 10 * 9], run: strided_convolution },
    Kernel { name: "linear", lens: &[3 * 7, 7 * 18, 18, 3 * 18], run: linear_layer },
    Kernel { name: "linear", lens: &[2 * 3 * 7, 7 * 18, 18, 2 * 3 * 18], run: linear_of_sequences },
    Kernel { name: "linear", lens: &[2 * 3 * 520, 520 * 2, 2, 2 * 3 * 2], run: wide_linear },
    Kernel { name: "linear_gelu", lens: &[2 * 3 * 7, 7 * 18, 18, 2 * 3 * 18], run: linear_and_gelu },
    Kernel {
        name: "linear_gelu_tanh",
        lens: &[2 * 3 * 7, 7 * 18, 18, 2 * 3 * 18],
        run: linear_and_gelu_by_tanh,
    },
    Kernel {
        name: "linear_add",
        lens: &[2 * 3 * 7, 7 * 18, 18, 2 * 3 * 18, 2 * 3 * 18],
        run: linear_and_residual,
    },
    Kernel {
        name: "linear_add",
        lens: &[2 * 3 * 7, 7 * 18, 18, 2 * 3 * 18, 2 * 3 * 18],
        run: linear_dropout_and_residual,
    },
    Kernel { name: "matmul", lens: &[3 * 7, 7 * 18, 3 * 18], run: product },
    Kernel { name: "matmul", lens: &[2 * 3 * 7, 2 * 18 * 7, 2 * 3 * 18], run: batched_product },
    Kernel { name: "self_attention", lens: &[2 * 5 * 24, 2 * 5 * 8], run: attention },
    Kernel { name: "self_attention", lens: &[2 * 5 * 24, 2 * 5 * 8], run: masked_attention },
    Kernel { name: "self_attention", lens: &[35 * 24, 35 * 8], run: long_attention },
    Kernel { name: "batch_norm", lens: &[3 * 19 * 4, 19, 19, 3 * 19 * 4], run: normalization },
    Kernel { name: "batch_norm", lens: &[3 * 19 * 4, 19, 19, 3 * 19 * 4], run: evaluated_normalization },
    Kernel { name: "batch_norm_relu", lens: &[3 * 19 * 4, 19, 19, 3 * 19 * 4], run: normalization_relu },
    Kernel {
        name: "batch_norm_add_relu",
        lens: &[3 * 19 * 4, 19, 19, 3 * 19 * 4, 3 * 19 * 4],
        run: normalization_add_relu,
    },
    Kernel { name: "layer_norm", lens: &[4 * 19, 19, 19, 4 * 19], run: layer_normalization },
    Kernel { name: "fork_layer_norm", lens: &[4 * 19, 19, 19, 4 * 19], run: forked_layer_normalization },
    Kernel { name: "gelu", lens: &[37, 37], run: gaussian_unit },
    Kernel { name: "gelu_tanh", lens: &[37, 37], run: gaussian_unit_by_tanh },
    Kernel { name: "embedding", lens: &[7 * 5, 2 * 3 * 5], run: lookup },
    Kernel { name: "cross_entropy", lens: &[5 * 19, 1], run: entropy },
    Kernel { name: "linear_cross_entropy", lens: &[5 * 7, 7 * 19, 1], run: entropy_of_products },
    Kernel {
        name: "smoothed_linear_cross_entropy",
        lens: &[5 * 7, 7 * 19, 1],
        run: smoothed_entropy_of_products,
    },
    Kernel { name: "smoothed_cross_entropy", lens: &[5 * 19, 1], run: smoothed_entropy },
    Kernel { name: "max_pool2d", lens: &[2 * 3 * 25, 2 * 3 * 9], run: pooling },
    Kernel { name: "global_average_pool", lens: &[2 * 3 * 25, 2 * 3], run: average },
    Kernel { name: "fork", lens: &[2 * 3 * 4, 2 * 3 * 4], run: forked },
];

/// Functions of the crate that compute nothing.
const OTHERS: [&str; 4] = ["arrange", "declare_recomputed", "forget_recomputed", "with_precision"];

/// Reader of one input's gradient.
type GradientOf = Box<dyn Fn(&Gradients) -> Vec<f32>>;

struct Pass<'a> {
    /// True if the crate's function is called, false if Burn's.
    ours: bool,
    inputs: &'a [Vec<f32>],
    gradients: Vec<GradientOf>,
    others: Vec<Vec<f32>>,
}

fn device() -> Device {
    Device::flex().autodiff()
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter().collect()
}

impl Pass<'_> {
    /// Creates an input whose gradient is compared.
    fn input<const D: usize>(&mut self, n: usize, dims: [usize; D]) -> Tensor<D> {
        let data = TensorData::new(self.inputs[n].clone(), dims);
        let leaf = Tensor::from_data(data, &device()).require_grad();
        let of = leaf.clone();
        self.gradients.push(Box::new(move |gradients| values(of.grad(gradients).expect("it is used"))));
        leaf
    }

    fn param<const D: usize>(&mut self, n: usize, dims: [usize; D]) -> Param<Tensor<D>> {
        Param::from_tensor(self.input(n, dims))
    }
}

/// Returns output, gradients and further results of a kernel for these inputs and this gradient of the
/// output.
fn run(kernel: &Kernel, ours: bool, numbers: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let (of_output, inputs) = numbers.split_last().expect("an output");
    let mut pass = Pass { ours, inputs, gradients: Vec::new(), others: Vec::new() };
    let output = (kernel.run)(&mut pass);
    let of_output = Tensor::<1>::from_data(TensorData::new(of_output.clone(), [of_output.len()]), &device());
    let gradients = (output.clone() * of_output).sum().backward();
    let mut all = vec![values(output)];
    all.extend(pass.gradients.iter().map(|of| of(&gradients)));
    all.extend(pass.others);
    all
}

fn convolution(pass: &mut Pass<'_>) -> Tensor<1> {
    convolve(pass, [3, 5, 4, 4], [19, 5, 3, 3], 1, 1)
}

fn strided_convolution(pass: &mut Pass<'_>) -> Tensor<1> {
    convolve(pass, [2, 8, 5, 5], [10, 4, 3, 3], 2, 2)
}

fn convolve(
    pass: &mut Pass<'_>,
    x: [usize; 4],
    weight: [usize; 4],
    stride: usize,
    groups: usize,
) -> Tensor<1> {
    let layer = Conv2d {
        weight: pass.param(1, weight),
        bias: Some(pass.param(2, [weight[0]])),
        stride: [stride; 2],
        kernel_size: [weight[2], weight[3]],
        dilation: [1; 2],
        groups,
        padding: PaddingConfig2d::Explicit(1, 1, 1, 1),
    };
    let x = pass.input(0, x);
    flat(if pass.ours { conv2d(&layer, x) } else { layer.forward(x) })
}

fn linear_layer(pass: &mut Pass<'_>) -> Tensor<1> {
    let layer = Linear { weight: pass.param(1, [7, 18]), bias: Some(pass.param(2, [18])) };
    let x = pass.input(0, [3, 7]);
    flat(if pass.ours { linear(&layer, x) } else { layer.forward(x) })
}

/// Creates a layer of sequences, and its input.
fn sequences(pass: &mut Pass<'_>, inputs: usize, outputs: usize) -> (Linear, Tensor<3>) {
    let layer = Linear { weight: pass.param(1, [inputs, outputs]), bias: Some(pass.param(2, [outputs])) };
    (layer, pass.input(0, [2, 3, inputs]))
}

fn linear_of_sequences(pass: &mut Pass<'_>) -> Tensor<1> {
    let (layer, x) = sequences(pass, 7, 18);
    flat(if pass.ours { linear(&layer, x) } else { layer.forward(x) })
}

/// Has sums of more than one chain of additions.
fn wide_linear(pass: &mut Pass<'_>) -> Tensor<1> {
    let (layer, x) = sequences(pass, 520, 2);
    flat(if pass.ours { linear(&layer, x) } else { layer.forward(x) })
}

fn linear_and_gelu(pass: &mut Pass<'_>) -> Tensor<1> {
    let (layer, x) = sequences(pass, 7, 18);
    flat(if pass.ours { linear_gelu(&layer, x) } else { activation::gelu(layer.forward(x)) })
}

fn linear_and_gelu_by_tanh(pass: &mut Pass<'_>) -> Tensor<1> {
    let (layer, x) = sequences(pass, 7, 18);
    flat(match pass.ours {
        true => linear_gelu_tanh(&layer, x),
        false => activation::gelu_approximate(layer.forward(x)),
    })
}

fn linear_and_residual(pass: &mut Pass<'_>) -> Tensor<1> {
    let (layer, x) = sequences(pass, 7, 18);
    let residual = pass.input::<3>(3, [2, 3, 18]);
    flat(if pass.ours { linear_add(&layer, x, residual, None) } else { residual + layer.forward(x) })
}

fn linear_dropout_and_residual(pass: &mut Pass<'_>) -> Tensor<1> {
    let (layer, x) = sequences(pass, 7, 18);
    let residual = pass.input::<3>(3, [2, 3, 18]);
    let mask = DropoutMask::draw(6, 18, 1.5, |row| (18, move |column| (row + column) % 3 > 0));
    if pass.ours {
        return flat(linear_add(&layer, x, residual, Some(mask)));
    }
    let factors = Tensor::from_data(TensorData::new(mask.factors(), [2, 3, 18]), &device());
    flat(residual + layer.forward(x) * factors)
}

fn product(pass: &mut Pass<'_>) -> Tensor<1> {
    let (a, b) = (pass.input(0, [3, 7]), pass.input(1, [7, 18]));
    flat(if pass.ours { matmul(a, b) } else { a.matmul(b) })
}

/// One row several times, and one never.
fn lookup(pass: &mut Pass<'_>) -> Tensor<1> {
    let table = pass.input::<2>(0, [7, 5]);
    let indices = Tensor::<2, Int>::from_ints([[1, 6, 1], [0, 2, 1]], &device());
    flat(if pass.ours { embedding(table, indices) } else { module::embedding(table, indices) })
}

fn batched_product(pass: &mut Pass<'_>) -> Tensor<1> {
    let (a, b) = (pass.input::<3>(0, [2, 3, 7]), pass.input::<3>(1, [2, 18, 7]).transpose());
    flat(if pass.ours { matmul(a, b) } else { a.matmul(b) })
}

fn attention(pass: &mut Pass<'_>) -> Tensor<1> {
    attend(pass, [2, 5], false, None)
}

/// The first key of the second sample is padding, so its first position can attend to nothing.
fn masked_attention(pass: &mut Pass<'_>) -> Tensor<1> {
    let padding = [false, false, true, false, false, true, false, false, false, true];
    attend(pass, [2, 5], true, Some(Tensor::<1, Bool>::from_data(padding, &device()).reshape([2, 5])))
}

/// Keys after a block of queries are skipped, unless a weight of 0 must meet values that are not finite.
fn long_attention(pass: &mut Pass<'_>) -> Tensor<1> {
    attend(pass, [1, 35], true, None)
}

fn attend(
    pass: &mut Pass<'_>,
    [batch, time]: [usize; 2],
    causal: bool,
    padding: Option<Tensor<2, Bool>>,
) -> Tensor<1> {
    let (heads, head) = (2, 4);
    let qkv = pass.input::<3>(0, [batch, time, 3 * heads * head]);
    if pass.ours {
        return flat(self_attention(qkv, Attention { heads, causal, padding, weight_mask: None }));
    }
    let part = |n| {
        let part = qkv.clone().narrow(2, n * heads * head, heads * head);
        part.reshape([batch, time, heads, head]).swap_dims(1, 2)
    };
    let scores: Tensor<4> = part(0).matmul(part(1).transpose()).div_scalar((head as f64).sqrt());
    let padding: Vec<bool> =
        padding.map_or(vec![false; batch * time], |padding| padding.into_data().iter().collect());
    let is_hidden =
        |sample: usize, query: usize, key: usize| causal && key > query || padding[sample * time + key];
    // For each score, true if it is hidden, or if its whole row is.
    let mask = |of: &dyn Fn(usize, usize, usize) -> bool| {
        let at = |i: usize| of(i / (heads * time * time), i / time % time, i % time);
        let mask: Vec<bool> = (0..batch * heads * time * time).map(at).collect();
        Tensor::<1, Bool>::from_data(&mask[..], &device()).reshape([batch, heads, time, time])
    };
    let hidden = mask(&is_hidden);
    let blind = mask(&|sample, query, _| (0..time).all(|key| is_hidden(sample, query, key)));
    let scores = scores.mask_fill(hidden.clone(), f32::NEG_INFINITY).mask_fill(blind, 0.0);
    let weights = softmax(scores, 3).mask_fill(hidden, 0.0);
    flat(weights.matmul(part(2)).swap_dims(1, 2))
}

fn batch_norm_layer(pass: &mut Pass<'_>) -> BatchNorm {
    let mut layer = BatchNormConfig::new(19).init(&device());
    (layer.gamma, layer.beta) = (pass.param(1, [19]), pass.param(2, [19]));
    layer
}

/// Returns the output, and records the running statistics after it.
fn normalized(pass: &mut Pass<'_>, layer: &BatchNorm, output: Tensor<4>) -> Tensor<1> {
    let running = [&layer.running_mean, &layer.running_var];
    pass.others.extend(running.map(|running| values(running.value_sync())));
    flat(output)
}

fn normalization(pass: &mut Pass<'_>) -> Tensor<1> {
    let (layer, x) = (batch_norm_layer(pass), pass.input(0, [3, 19, 2, 2]));
    let output = if pass.ours { batch_norm(&layer, x) } else { layer.forward(x) };
    normalized(pass, &layer, output)
}

/// Uses running statistics, some of which are not finite.
fn evaluated_normalization(pass: &mut Pass<'_>) -> Tensor<1> {
    let mut layer = batch_norm_layer(pass);
    layer.training = Param::from_bool(false);
    let statistic = |n: usize, poison: f32| {
        let values = (0..19).map(|i| if i == n { poison } else { 0.5 + i as f32 / 19.0 });
        Tensor::<1>::from_data(TensorData::new(values.collect::<Vec<f32>>(), [19]), &device())
    };
    layer.running_mean.update(statistic(3, f32::NAN));
    layer.running_var.update(statistic(5, f32::INFINITY));
    let x = pass.input(0, [3, 19, 2, 2]);
    let output = if pass.ours { batch_norm(&layer, x) } else { layer.forward(x) };
    normalized(pass, &layer, output)
}

fn normalization_relu(pass: &mut Pass<'_>) -> Tensor<1> {
    let (layer, x) = (batch_norm_layer(pass), pass.input(0, [3, 19, 2, 2]));
    let output = if pass.ours { batch_norm_relu(&layer, x) } else { relu(layer.forward(x)) };
    normalized(pass, &layer, output)
}

fn normalization_add_relu(pass: &mut Pass<'_>) -> Tensor<1> {
    let (layer, x) = (batch_norm_layer(pass), pass.input(0, [3, 19, 2, 2]));
    let shortcut = pass.input(3, [3, 19, 2, 2]);
    let output = match pass.ours {
        true => batch_norm_add_relu(&layer, x, shortcut),
        false => relu(layer.forward(x) + shortcut),
    };
    normalized(pass, &layer, output)
}

fn layer_normalization(pass: &mut Pass<'_>) -> Tensor<1> {
    let (x, gamma, beta) = (pass.input::<2>(0, [4, 19]), pass.input(1, [19]), Some(pass.input(2, [19])));
    flat(match pass.ours {
        true => layer_norm(x, gamma, beta, 1e-5),
        false => module::layer_norm(x, gamma, beta, 1e-5),
    })
}

fn forked_layer_normalization(pass: &mut Pass<'_>) -> Tensor<1> {
    // A leaf would be passed through.
    let x = pass.input::<2>(0, [4, 19]).mul_scalar(2.0);
    let (gamma, beta) = (pass.input(1, [19]), Some(pass.input(2, [19])));
    let [a, b] = match pass.ours {
        true => fork_layer_norm(x, gamma, beta, 1e-5),
        false => [x.clone(), module::layer_norm(x, gamma, beta, 1e-5)],
    };
    flat(a.mul_scalar(3.0) + b)
}

fn gaussian_unit(pass: &mut Pass<'_>) -> Tensor<1> {
    let x = pass.input(0, [37]);
    if pass.ours { gelu(x) } else { activation::gelu(x) }
}

fn gaussian_unit_by_tanh(pass: &mut Pass<'_>) -> Tensor<1> {
    let x = pass.input(0, [37]);
    if pass.ours { gelu_tanh(x) } else { activation::gelu_approximate(x) }
}

/// Targets of five rows.
const TARGETS: [usize; 5] = [3, 0, 18, 7, 7];

/// Returns the factors of the scores, and the logarithms of their softmax with Burn's operations.
fn products_of_classes(pass: &mut Pass<'_>) -> (Tensor<2>, Tensor<2>, Tensor<2>) {
    let (x, weight) = (pass.input::<2>(0, [5, 7]), pass.input::<2>(1, [7, 19]));
    let logarithms = log_softmax(x.clone().matmul(weight.clone()), 1);
    (x, weight, logarithms)
}

fn of_targets(logarithms: Tensor<2>) -> Tensor<2> {
    let index = TARGETS.map(|target| target as i64);
    logarithms.gather(1, Tensor::<1, Int>::from_data(index, &device()).reshape([5, 1]))
}

fn entropy_of_products(pass: &mut Pass<'_>) -> Tensor<1> {
    let (x, weight, logarithms) = products_of_classes(pass);
    match pass.ours {
        true => linear_cross_entropy(x, weight, TARGETS.map(Some).to_vec()),
        false => of_targets(logarithms).sum().neg(),
    }
}

fn smoothed_entropy_of_products(pass: &mut Pass<'_>) -> Tensor<1> {
    let (x, weight, logarithms) = products_of_classes(pass);
    match pass.ours {
        true => smoothed_linear_cross_entropy(x, weight, TARGETS.map(Some).to_vec(), 0.1),
        false => (of_targets(logarithms.clone()) * 0.9 + logarithms.mean_dim(1) * 0.1).sum().neg(),
    }
}

/// A row without a target is ignored: it adds nothing and has no gradient, even if it is not finite.
fn entropy(pass: &mut Pass<'_>) -> Tensor<1> {
    let targets = [Some(0), Some(18), None, Some(7), Some(9)];
    let scores = pass.input::<2>(0, [5, 19]);
    if pass.ours {
        return cross_entropy(scores, targets.to_vec());
    }
    let ignored: Vec<bool> = targets.iter().map(Option::is_none).collect();
    let ignored = Tensor::<1, Bool>::from_data(&ignored[..], &device()).reshape([5, 1]);
    let scores = scores.mask_fill(ignored.clone().expand([5, 19]), 0.0);
    let index: Vec<i64> = targets.iter().map(|target| target.unwrap_or(0) as i64).collect();
    let index = Tensor::<2, Int>::from_data(TensorData::new(index, [5, 1]), &device());
    log_softmax(scores, 1).gather(1, index).mask_fill(ignored, 0.0).sum().neg()
}

fn smoothed_entropy(pass: &mut Pass<'_>) -> Tensor<1> {
    let targets = [0, 18, 3, 7, 9];
    let scores = pass.input::<2>(0, [5, 19]);
    if pass.ours {
        return smoothed_cross_entropy(scores, targets.map(Some).to_vec(), 0.1);
    }
    let index = Tensor::<1, Int>::from_data(targets, &device()).reshape([5, 1]);
    let logarithms = log_softmax(scores, 1);
    (logarithms.clone().gather(1, index) * 0.9 + logarithms.mean_dim(1) * 0.1).sum().neg()
}

fn average(pass: &mut Pass<'_>) -> Tensor<1> {
    let x = pass.input::<4>(0, [2, 3, 5, 5]);
    flat(if pass.ours { global_average_pool(x) } else { x.flatten::<3>(2, 3).mean_dim(2).squeeze_dim(2) })
}

fn pooling(pass: &mut Pass<'_>) -> Tensor<1> {
    let layer = MaxPool2dConfig::new([3, 3])
        .with_strides([2, 2])
        .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
        .init();
    let x = pass.input(0, [2, 3, 5, 5]);
    flat(if pass.ours { max_pool2d(&layer, x) } else { layer.forward(x) })
}

fn forked(pass: &mut Pass<'_>) -> Tensor<1> {
    // `fork` passes leaves through, so this must not be a leaf.
    let x = pass.input::<4>(0, [2, 3, 2, 2]).mul_scalar(2.0);
    let [a, b] = if pass.ours { fork(x) } else { [x.clone(), x] };
    flat(a.mul_scalar(3.0) + b)
}

fn flat<const D: usize>(x: Tensor<D>) -> Tensor<1> {
    let len = x.shape().num_elements();
    x.reshape([len])
}

/// Returns a number between -1 and 1 that is not 0.
fn number(n: usize, index: usize) -> f32 {
    ((n * 7_919 + index * 104_729 + 13) as f32 * 0.37).sin()
}

fn kind(value: f32) -> &'static str {
    match value {
        _ if value.is_nan() => "NaN",
        f32::INFINITY => "∞",
        f32::NEG_INFINITY => "-∞",
        _ => "finite",
    }
}

/// Kernel that skips products with padding. In Burn's layer they are NaN if the other factor is not finite.
/// Values that are not finite still appear, at positions that see more than padding.
const LEAVES_PADDING: &str = "conv2d";

fn compare(what: &str, of_nan: bool, ours: &[Vec<f32>], burns: &[Vec<f32>]) -> usize {
    assert_eq!(ours.len(), burns.len());
    let leaves_padding = what.starts_with(LEAVES_PADDING);
    let mut broken = 0;
    for (part, (ours, burns)) in ours.iter().zip(burns).enumerate() {
        assert_eq!(ours.len(), burns.len(), "{what}, part {part}");
        let finite = burns.iter().filter(|value| value.is_finite());
        let size = finite.fold(1e-3f32, |most, value| most.max(value.abs()));
        let comes_out = ours.iter().any(|value| !value.is_finite());
        for (index, (ours, burns)) in ours.iter().zip(burns).enumerate() {
            let context = || format!("{what}, part {part}, element {index}: {ours}, Burn's {burns}");
            if leaves_padding && comes_out && !burns.is_finite() {
                broken += 1;
                continue;
            }
            // In a gradient's sum with an infinity, the order of terms decides whether the result is NaN.
            let by_order = part > 0 && !of_nan && !ours.is_finite() && !burns.is_finite();
            assert!(by_order || kind(*ours) == kind(*burns), "{}", context());
            assert!(!burns.is_finite() || (ours - burns).abs() <= 1e-5 * size, "{}", context());
            broken += usize::from(!burns.is_finite());
        }
    }
    broken
}

#[test]
fn what_is_not_finite_comes_out_where_burns_layers_have_it() {
    for kernel in KERNELS {
        let healthy: Vec<Vec<f32>> = (0..)
            .zip(kernel.lens)
            .map(|(n, len)| (0..*len).map(|index| number(n, index)).collect())
            .collect();
        let mut broken = 0;
        for (n, len) in kernel.lens.iter().enumerate() {
            for at in [0, len / 3, len / 2, len - 1] {
                for poison in POISONS {
                    let mut numbers = healthy.clone();
                    numbers[n][at] = poison;
                    let what = format!("{}, {poison:e} ({:x}) at {at} of {n}", kernel.name, poison.to_bits());
                    broken += compare(
                        &what,
                        poison.is_nan(),
                        &run(kernel, true, &numbers),
                        &run(kernel, false, &numbers),
                    );
                }
            }
        }
        assert!(broken > 0, "{}: nothing came of it", kernel.name);
    }
}

/// Whole rows, channels and windows without a finite number.
#[test]
fn inputs_without_a_finite_number_are_those_of_burn() {
    for kernel in KERNELS {
        for poison in POISONS {
            for n in 0..kernel.lens.len() {
                let fill = |(other, len): (usize, &usize)| match other == n {
                    true => vec![poison; *len],
                    false => (0..*len).map(|index| number(other, index)).collect(),
                };
                let numbers: Vec<Vec<f32>> = kernel.lens.iter().enumerate().map(fill).collect();
                let what = format!("{}, {poison:e} ({:x}) in all of {n}", kernel.name, poison.to_bits());
                compare(&what, poison.is_nan(), &run(kernel, true, &numbers), &run(kernel, false, &numbers));
            }
        }
    }
}

#[test]
fn every_function_of_the_crate_is_on_the_list() {
    let exported = include_str!("../src/lib.rs").lines().filter_map(|line| line.strip_prefix("pub use "));
    let names =
        exported.flat_map(|line| line.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')));
    let functions = names
        .filter_map(|name| name.rsplit("::").next())
        .filter(|name| !name.is_empty() && name.starts_with(|c: char| c.is_lowercase()));
    let mut seen = 0;
    for name in functions {
        let known = OTHERS.contains(&name) || KERNELS.iter().any(|kernel| kernel.name == name);
        assert!(known, "`{name}` is a function of the crate, but no kernel of this test");
        seen += 1;
    }
    assert_eq!(seen, 26, "functions of the crate");
}
