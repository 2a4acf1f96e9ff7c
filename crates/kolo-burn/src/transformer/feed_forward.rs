//! Feed-forward network, which works on each position alone.

use burn::config::Config;
use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};
use burn_flex_nn::{linear, linear_add, linear_gelu, linear_gelu_tanh};

use super::init::Init;
use crate::dropout::{Dropout, DropoutKey};

/// Activation between the two linear layers of a [`FeedForward`].
#[derive(Config, Debug, Copy, PartialEq, Eq)]
pub enum Activation {
    /// x · Φ(x), not its approximation by tanh ([arXiv:1606.08415](https://arxiv.org/abs/1606.08415)).
    Gelu,
    /// ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))), the approximation that GPT-2 was trained with.
    GeluTanh,
    /// max(x, 0), as in Vaswani et al. 2017.
    Relu,
}

/// Configuration of a [`FeedForward`].
#[derive(Config, Debug)]
pub struct FeedForwardConfig {
    /// Width of the input and the output.
    pub width: usize,
    /// Width between the two layers; 4 · `width` is common.
    pub hidden: usize,
    /// Name that keys dropout and initial values; unique among the layers of a model.
    pub name: String,
    /// Activation between the two layers. Default: GELU.
    #[config(default = "Activation::Gelu")]
    pub activation: Activation,
    /// Share of the output dropped in training. Default: 0.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// Number of layers whose outputs the residual stream adds up; the initial values of the second layer are
    /// divided by its square root. Default: 1.
    #[config(default = 1)]
    pub residuals: usize,
    /// Seed of the initial values. Default: 0.
    #[config(default = 0)]
    pub seed: u64,
}

impl FeedForwardConfig {
    /// Creates the layer. Weights are normal with deviation 0.02, those of the second layer divided by
    /// √`residuals`; biases are 0 (Radford et al. 2019). All depend only on seed and name.
    ///
    /// # Panics
    ///
    /// Panics if dropout is not at least 0 and below 1.
    pub fn init(&self, device: &Device) -> FeedForward {
        let Self { width, hidden, ref name, activation, dropout, residuals, seed } = *self;
        let init = Init { seed, device };
        FeedForward {
            c_fc: init.linear(&format!("{name}.c_fc"), [width, hidden], 1),
            c_proj: init.linear(&format!("{name}.c_proj"), [hidden, width], residuals),
            activation,
            dropout: Dropout::new(dropout),
            name: name.clone(),
        }
    }
}

/// Position-wise feed-forward network (Vaswani et al. 2017,
/// [arXiv:1706.03762](https://arxiv.org/abs/1706.03762), equation 2): activation(x · W₁ + b₁) · W₂ + b₂.
/// Field names are those of GPT-2.
#[derive(Module, Debug)]
pub struct FeedForward {
    /// First layer: `[width, hidden]`.
    pub c_fc: Linear,
    /// Second layer: `[hidden, width]`.
    pub c_proj: Linear,
    #[module(skip)]
    activation: Activation,
    dropout: Dropout,
    name: String,
}

impl FeedForward {
    /// Runs the forward pass. A dropout key means training; `None` means evaluation.
    ///
    /// # Shapes
    ///
    /// - `x`, output: `[batch, time, width]`
    ///
    /// # Panics
    ///
    /// Panics if `x` has another width than the layer.
    pub fn forward(&self, x: Tensor<3>, dropout: Option<&DropoutKey>) -> Tensor<3> {
        let out = linear(&self.c_proj, self.active(x));
        self.dropout.of_output(out, &self.name, dropout)
    }

    /// Returns `residual` plus the forward pass.
    pub(super) fn added(&self, residual: Tensor<3>, x: Tensor<3>, dropout: Option<&DropoutKey>) -> Tensor<3> {
        let mask = self.dropout.output_mask(residual.dims(), &self.name, dropout);
        linear_add(&self.c_proj, self.active(x), residual, mask)
    }

    fn active(&self, x: Tensor<3>) -> Tensor<3> {
        match self.activation {
            Activation::Gelu => linear_gelu(&self.c_fc, x),
            Activation::GeluTanh => linear_gelu_tanh(&self.c_fc, x),
            Activation::Relu => relu(linear(&self.c_fc, x)),
        }
    }
}
