//! Multi-head self-attention.

use burn::config::Config;
use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::{Bool, Device, Tensor};
use burn_flex_nn::{Attention, linear, linear_add, self_attention};

use super::init::Init;
use crate::dropout::{Dropout, DropoutKey};

/// Configuration of a [`SelfAttention`].
#[derive(Config, Debug)]
pub struct SelfAttentionConfig {
    /// Width of the input and the output.
    pub width: usize,
    /// Number of heads; it must divide the width.
    pub heads: usize,
    /// Name that keys dropout and initial values; unique among the layers of a model.
    pub name: String,
    /// True if a position sees only itself and earlier ones. Default: true.
    #[config(default = true)]
    pub causal: bool,
    /// Share of weights and of output elements dropped in training. Default: 0.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// Number of layers whose outputs the residual stream adds up; the initial values of the output's
    /// projection are divided by its square root. Default: 1.
    #[config(default = 1)]
    pub residuals: usize,
    /// Seed of the initial values. Default: 0.
    #[config(default = 0)]
    pub seed: u64,
}

impl SelfAttentionConfig {
    /// Creates the layer. Weights are normal with deviation 0.02, those of the output's projection divided by
    /// √`residuals`; biases are 0 (Radford et al. 2019). All depend only on seed and name.
    ///
    /// # Panics
    ///
    /// Panics if the heads do not divide the width, or if dropout is not at least 0 and below 1.
    pub fn init(&self, device: &Device) -> SelfAttention {
        let Self { width, heads, ref name, causal, dropout, residuals, seed } = *self;
        assert!(heads > 0 && width % heads == 0, "a width of {width} in {heads} heads: they must divide it");
        let init = Init { seed, device };
        SelfAttention {
            c_attn: init.linear(&format!("{name}.c_attn"), [width, 3 * width], 1),
            c_proj: init.linear(&format!("{name}.c_proj"), [width, width], residuals),
            dropout: Dropout::new(dropout),
            heads,
            causal,
            name: name.clone(),
        }
    }
}

/// Multi-head self-attention (Vaswani et al. 2017, [arXiv:1706.03762](https://arxiv.org/abs/1706.03762),
/// section 3.2.2): softmax(q·kᵀ / √d) · v for each head, and a projection of all heads. Field names are those
/// of GPT-2.
///
/// Dropout applies to the weights after softmax, and to the output.
#[derive(Module, Debug)]
pub struct SelfAttention {
    /// Projection from the input to queries, keys and values, side by side: `[width, 3 · width]`.
    pub c_attn: Linear,
    /// Projection from the heads, side by side, to the output: `[width, width]`.
    pub c_proj: Linear,
    dropout: Dropout,
    heads: usize,
    causal: bool,
    name: String,
}

impl SelfAttention {
    /// Runs the forward pass. `padding` is true for positions of the input that no position may attend to. A
    /// dropout key means training; `None` means evaluation.
    ///
    /// # Shapes
    ///
    /// - `x`, output: `[batch, time, width]` - `padding`: `[batch, time]`
    ///
    /// # Panics
    ///
    /// Panics if `x` has another width than the layer, or if `padding` has another shape.
    pub fn forward(
        &self,
        x: Tensor<3>,
        padding: Option<&Tensor<2, Bool>>,
        dropout: Option<&DropoutKey>,
    ) -> Tensor<3> {
        let out = linear(&self.c_proj, self.heads(x, padding, dropout));
        self.dropout.of_output(out, &self.name, dropout)
    }

    /// Returns `residual` plus the forward pass.
    pub(super) fn added(
        &self,
        residual: Tensor<3>,
        x: Tensor<3>,
        padding: Option<&Tensor<2, Bool>>,
        dropout: Option<&DropoutKey>,
    ) -> Tensor<3> {
        let mask = self.dropout.output_mask(x.dims(), &self.name, dropout);
        linear_add(&self.c_proj, self.heads(x, padding, dropout), residual, mask)
    }

    fn heads(
        &self,
        x: Tensor<3>,
        padding: Option<&Tensor<2, Bool>>,
        dropout: Option<&DropoutKey>,
    ) -> Tensor<3> {
        let [batch, time, _] = x.dims();
        let weights = [batch, self.heads * time, time];
        let seen = |row| if self.causal { row % time + 1 } else { time };
        let mask = |key| self.dropout.mask(weights, seen, &format!("{}.weights", self.name), key);
        let attention = Attention {
            heads: self.heads,
            causal: self.causal,
            padding: padding.cloned(),
            weight_mask: dropout.and_then(mask),
        };
        self_attention(linear(&self.c_attn, x), attention)
    }
}
