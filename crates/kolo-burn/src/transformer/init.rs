//! Initial values. Each element is a function of (seed, name, element), so that every rank builds the same
//! layers in any order.

use burn::nn::{LayerNorm, LayerNormConfig, Linear};
use burn::tensor::{Device, Tensor};

use kolo_ddp::key::Key;

use crate::values::lazy_param;

/// Constant that layer normalizations add to the variance.
const EPSILON: f64 = 1e-5;

/// Standard deviation of weights (`initializer_range` of the published GPT-2).
const DEVIATION: f64 = 0.02;

pub(super) struct Init<'a> {
    pub(super) seed: u64,
    pub(super) device: &'a Device,
}

impl Init<'_> {
    /// Creates normal weights `[input, output]` of deviation 0.02 / √residuals, so that a sum of that many
    /// outputs has the variance of one, and a bias of zeros.
    pub(super) fn linear(&self, name: &str, shape: [usize; 2], residuals: usize) -> Linear {
        let deviation = DEVIATION / (residuals.max(1) as f64).sqrt();
        let key = Key::new(self.seed).with_str(name).with_str("weight");
        let value = move |index| (deviation * key.with(index).normal()) as f32;
        Linear {
            weight: lazy_param(shape, self.device, value),
            bias: Some(lazy_param([shape[1]], self.device, |_| 0.0)),
        }
    }

    /// Creates a layer normalization with scale 1 and shift 0.
    pub(super) fn layer_norm(&self, width: usize) -> LayerNorm {
        LayerNormConfig::new(width).with_epsilon(EPSILON).init(self.device)
    }
}

/// Runs the forward pass of a layer created by [`Init::layer_norm`].
pub(super) fn layer_norm(layer: &LayerNorm, x: Tensor<3>) -> Tensor<3> {
    burn_flex_nn::layer_norm(x, layer.gamma.val(), layer.beta.as_ref().map(|beta| beta.val()), EPSILON)
}

/// Returns `[x, layer_norm(layer, x)]`.
pub(super) fn fork_layer_norm(layer: &LayerNorm, x: Tensor<3>) -> [Tensor<3>; 2] {
    let beta = layer.beta.as_ref().map(|beta| beta.val());
    burn_flex_nn::fork_layer_norm(x, layer.gamma.val(), beta, EPSILON)
}
