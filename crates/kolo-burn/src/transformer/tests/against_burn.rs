//! Comparison of outputs and gradients with Burn's `TransformerEncoder` of the same weights.

use burn::module::Param;
use burn::nn::activation::ActivationConfig;
use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use burn::nn::{LayerNorm, LayerNormConfig, Linear};
use burn::tensor::{Bool, Device, Tensor};

use super::{device, tensor, values};
use crate::transformer::{Activation, Norm, Transformer, TransformerConfig};

const BATCH: usize = 3;
const TIME: usize = 13;
const WIDTH: usize = 24;

fn linear(seed: usize, [input, output]: [usize; 2], device: &Device) -> Linear {
    let size = 1.0 / (input as f32).sqrt();
    Linear {
        weight: Param::from_tensor(tensor(seed, [input, output], device) * size),
        bias: Some(Param::from_tensor(tensor(seed + 1, [output], device) * 0.3)),
    }
}

fn norm(seed: usize, device: &Device) -> LayerNorm {
    let mut norm = LayerNormConfig::new(WIDTH).init(device);
    norm.gamma = Param::from_tensor(tensor(seed, [WIDTH], device) * 0.5 + 1.0);
    norm.beta = Some(Param::from_tensor(tensor(seed + 1, [WIDTH], device)));
    norm
}

/// Joins queries, keys and values side by side.
fn side_by_side(layers: [&Linear; 3]) -> Linear {
    let weights = layers.map(|layer| layer.weight.val().inner());
    let biases = layers.map(|layer| layer.bias.as_ref().unwrap().val().inner());
    Linear {
        weight: Param::from_tensor(Tensor::from_inner(Tensor::cat(weights.to_vec(), 1))),
        bias: Some(Param::from_tensor(Tensor::from_inner(Tensor::cat(biases.to_vec(), 0)))),
    }
}

/// Returns Burn's encoder and Kolo's transformer with the same weights.
fn pair(config: &TransformerConfig, device: &Device) -> (TransformerEncoder, Transformer) {
    let activation = match config.activation {
        Activation::Gelu => ActivationConfig::Gelu,
        Activation::GeluTanh => ActivationConfig::GeluApproximate,
        Activation::Relu => ActivationConfig::Relu,
    };
    let hidden = config.hidden.unwrap();
    let mut burns = TransformerEncoderConfig::new(WIDTH, hidden, config.heads, config.layers)
        .with_dropout(0.0)
        .with_norm_first(config.norm == Norm::Pre)
        .with_activation(activation)
        .init(device);
    let mut ours = config.init(device);
    for (number, (burns, ours)) in burns.layers.iter_mut().zip(&mut ours.h).enumerate() {
        let seed = 100 * number;
        let square = |index: usize| linear(seed + 2 * index, [WIDTH, WIDTH], device);
        (burns.mha.query, burns.mha.key, burns.mha.value, burns.mha.output) =
            (square(1), square(2), square(3), square(4));
        burns.pwff.linear_inner = linear(seed + 10, [WIDTH, hidden], device);
        burns.pwff.linear_outer = linear(seed + 12, [hidden, WIDTH], device);
        (burns.norm_1, burns.norm_2) = (norm(seed + 14, device), norm(seed + 16, device));
        ours.attn.c_attn = side_by_side([&burns.mha.query, &burns.mha.key, &burns.mha.value]);
        ours.attn.c_proj = burns.mha.output.clone();
        (ours.mlp.c_fc, ours.mlp.c_proj) = (burns.pwff.linear_inner.clone(), burns.pwff.linear_outer.clone());
        // Burn numbers the normalizations in the order of post-norm.
        let (first, second) = match config.norm {
            Norm::Pre => (&burns.norm_2, &burns.norm_1),
            Norm::Post => (&burns.norm_1, &burns.norm_2),
        };
        (ours.ln_1, ours.ln_2) = (first.clone(), second.clone());
    }
    ours.ln_f = ours.ln_f.map(|_| norm(90, device));
    (burns, ours)
}

fn close(what: &str, ours: Tensor<1>, burns: Tensor<1>) {
    let (ours, burns) = (values(ours), values(burns));
    assert_eq!(ours.len(), burns.len(), "{what}");
    let size = burns.iter().fold(1e-3f32, |most, value| most.max(value.abs()));
    for (index, (ours, burns)) in ours.iter().zip(&burns).enumerate() {
        assert!((ours - burns).abs() < 1e-5 * size, "{what}, element {index}: {ours}, Burn's {burns}");
    }
}

fn compare(config: TransformerConfig, padded: bool) {
    let device = device();
    let (burns, ours) = pair(&config, &device);
    // The first position is never padding, so that every query sees something.
    let padding = values(tensor(71, [BATCH, TIME], &device));
    let padding = padding.iter().enumerate().map(|(index, noise)| index % TIME > 0 && *noise > 0.2);
    let padding = Tensor::<1, Bool>::from_data(&padding.collect::<Vec<bool>>()[..], &device);
    let padding = padding.reshape([BATCH, TIME]);

    let x = tensor(50, [BATCH, TIME, WIDTH], &device);
    let [x_ours, x_burns] = [x.clone(), x].map(|x| x.require_grad());
    let out_ours = match padded {
        true => ours.forward_padded(x_ours.clone(), &padding, None),
        false => ours.forward(x_ours.clone(), None),
    };
    let mut input = TransformerEncoderInput::new(x_burns.clone());
    if padded {
        input = input.mask_pad(padding);
    }
    if config.causal {
        input = input.mask_attn(generate_autoregressive_mask(BATCH, TIME, &device));
    }
    let mut out_burns = burns.forward(input);
    if let Some(ln_f) = &ours.ln_f {
        out_burns = ln_f.forward(out_burns);
    }
    let what = format!("{config}, padded: {padded}");
    close(&format!("output of {what}"), out_ours.clone().flatten(0, 2), out_burns.clone().flatten(0, 2));

    let weights = tensor(60, [BATCH, TIME, WIDTH], &device);
    let by_ours = (out_ours * weights.clone()).sum().backward();
    let by_burns = (out_burns * weights).sum().backward();
    let of_x = [x_ours.grad(&by_ours).unwrap(), x_burns.grad(&by_burns).unwrap()];
    let [of_ours, of_burns] = of_x.map(|gradient| Tensor::from_inner(gradient).flatten(0, 2));
    close(&format!("gradient of x, {what}"), of_ours, of_burns);
    for (ours, burns) in ours.h.iter().zip(&burns.layers) {
        let linear = |name: &str, ours: &Linear, burns: &[&Linear]| {
            let weight =
                |layer: &Linear, gradients| Tensor::from_inner(layer.weight.grad(gradients).unwrap());
            let bias = |layer: &Linear, gradients| {
                Tensor::from_inner(layer.bias.as_ref().unwrap().grad(gradients).unwrap())
            };
            let expected = burns.iter().map(|layer| weight(layer, &by_burns)).collect();
            let expected: Tensor<2> = Tensor::cat(expected, 1);
            let of_ours: Tensor<2> = weight(ours, &by_ours);
            close(&format!("gradient of {name}, {what}"), of_ours.flatten(0, 1), expected.flatten(0, 1));
            let expected = burns.iter().map(|layer| bias(layer, &by_burns)).collect();
            let of_ours: Tensor<1> = bias(ours, &by_ours);
            // The bias of keys shifts all scores of a query alike, so its gradient is 0 up to rounding.
            close(&format!("gradient of {name}'s bias, {what}"), of_ours, Tensor::cat(expected, 0));
        };
        linear("c_attn", &ours.attn.c_attn, &[&burns.mha.query, &burns.mha.key, &burns.mha.value]);
        linear("attn.c_proj", &ours.attn.c_proj, &[&burns.mha.output]);
        linear("c_fc", &ours.mlp.c_fc, &[&burns.pwff.linear_inner]);
        linear("mlp.c_proj", &ours.mlp.c_proj, &[&burns.pwff.linear_outer]);
        let (first, second) = match config.norm {
            Norm::Pre => (&burns.norm_2, &burns.norm_1),
            Norm::Post => (&burns.norm_1, &burns.norm_2),
        };
        for (name, ours, burns) in [("ln_1", &ours.ln_1, first), ("ln_2", &ours.ln_2, second)] {
            let of = |norm: &LayerNorm, gradients| {
                let gamma = norm.gamma.grad(gradients).unwrap();
                let beta = norm.beta.as_ref().unwrap().grad(gradients).unwrap();
                Tensor::<1>::from_inner(Tensor::cat(vec![gamma, beta], 0))
            };
            close(&format!("gradient of {name}, {what}"), of(ours, &by_ours), of(burns, &by_burns));
        }
    }
}

#[test]
fn outputs_and_gradients_are_those_of_burns_encoder() {
    for (norm, activation) in
        [(Norm::Pre, Activation::Gelu), (Norm::Post, Activation::Relu), (Norm::Pre, Activation::GeluTanh)]
    {
        for (heads, causal, padded) in
            [(4, true, false), (4, false, false), (3, true, true), (1, false, true)]
        {
            let config = TransformerConfig::new(WIDTH, heads, 2)
                .with_hidden(Some(40))
                .with_norm(norm)
                .with_activation(activation)
                .with_causal(causal);
            compare(config, padded);
        }
    }
}
