//! Self-attention of several heads.

use burn::config::Config;
use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::{Bool, Device, Tensor};
use burn_flex_nn::{Attention, linear, self_attention};

use super::init::Init;
use crate::dropout::{Dropout, DropoutKey};

/// Configuration of a [`SelfAttention`].
#[derive(Config, Debug)]
pub struct SelfAttentionConfig {
    /// Width of the input and the output.
    pub width: usize,
    /// Into how many heads the width is divided.
    pub heads: usize,
    /// By what dropout and initial values tell this layer from the model's others: another name for each.
    pub name: String,
    /// Whether a position sees itself and what comes before only. Default: yes.
    #[config(default = true)]
    pub causal: bool,
    /// Share of the weights, and of the output, that a training step drops. Default: 0.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// How many layers' outputs are added up in the residual stream; the initial values of the output's
    /// projection are divided by its square root. Default: 1.
    #[config(default = 1)]
    pub residuals: usize,
    /// Seed of the initial values. Default: 0.
    #[config(default = 0)]
    pub seed: u64,
}

impl SelfAttentionConfig {
    /// Makes the layer: weights normal with deviation 0.02, those of the output's projection divided by
    /// √`residuals`, biases 0 (Radford et al. 2019). They follow from seed and name alone.
    ///
    /// # Panics
    ///
    /// If the heads do not divide the width, or dropout is not at least 0 and below 1.
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
/// section 3.2.2): softmax(q·kᵀ / √d) · v for each head, and a projection of all of them. Its fields are
/// GPT-2's.
///
/// Dropout is on the weights after softmax and on the output.
#[derive(Module, Debug)]
pub struct SelfAttention {
    /// From the input to queries, keys and values, side by side: `[width, 3 · width]`.
    pub c_attn: Linear,
    /// From the heads, side by side, to the output: `[width, width]`.
    pub c_proj: Linear,
    dropout: Dropout,
    heads: usize,
    causal: bool,
    name: String,
}

impl SelfAttention {
    /// Lets each position look at the others. `padding` says where the input is none: nobody looks there.
    /// Dropout is that of training where there is a key; in evaluation there is none.
    ///
    /// # Shapes
    ///
    /// - `x`, output: `[batch, time, width]`
    /// - `padding`: `[batch, time]`
    ///
    /// # Panics
    ///
    /// If `x` has another width than the layer, or `padding` another shape.
    pub fn forward(
        &self,
        x: Tensor<3>,
        padding: Option<&Tensor<2, Bool>>,
        dropout: Option<&DropoutKey>,
    ) -> Tensor<3> {
        let [batch, time, _] = x.dims();
        let weights = [batch, self.heads * time, time];
        let seen = |row| if self.causal { row % time + 1 } else { time };
        let factors = |key| self.dropout.factors(weights, seen, &format!("{}.weights", self.name), key);
        let attention = Attention {
            heads: self.heads,
            causal: self.causal,
            padding: padding.cloned(),
            weight_factors: dropout.and_then(factors),
        };
        let out = linear(&self.c_proj, self_attention(linear(&self.c_attn, x), attention));
        match dropout {
            Some(key) => self.dropout.forward(out, &format!("{}.output", self.name), key),
            None => out,
        }
    }
}
