//! Configuration of a transformer.

use burn::config::Config;

use super::feed_forward::Activation;

/// Position of the layer normalizations.
#[derive(Config, Debug, Copy, PartialEq, Eq)]
pub enum Norm {
    /// x + f(norm(x)), with one more normalization after the last block (Radford et al. 2019; Xiong et al.
    /// 2020, [arXiv:2002.04745](https://arxiv.org/abs/2002.04745), figure 1b). It trains without a warm-up of
    /// the learning rate.
    Pre,
    /// norm(x + f(x)), as in Vaswani et al. 2017, section 3.1.
    Post,
}

/// Configuration of a [`Transformer`](super::Transformer). The default is GPT-2's.
#[derive(Config, Debug)]
pub struct TransformerConfig {
    /// Width of the residual stream.
    pub width: usize,
    /// Number of heads of each attention; it must divide the width.
    pub heads: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Width between the layers of the feed-forward networks. Default: 4 · `width`.
    pub hidden: Option<usize>,
    /// True if a position sees only itself and earlier ones. Default: true.
    #[config(default = true)]
    pub causal: bool,
    /// Share of attention weights, attention outputs and feed-forward outputs dropped in training. Default:
    /// 0.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// Activation of the feed-forward networks. Default: GELU.
    #[config(default = "Activation::Gelu")]
    pub activation: Activation,
    /// Position of the layer normalizations. Default: before attention and feed-forward network.
    #[config(default = "Norm::Pre")]
    pub norm: Norm,
    /// True to compute each block a second time in the backward pass instead of keeping its activations
    /// ([`checkpointed`](crate::checkpointed)). The bits stay the same. Default: false.
    #[config(default = false)]
    pub activation_checkpointing: bool,
    /// Name that keys dropout and initial values; unique among the transformers of a model. Default:
    /// `transformer`.
    #[config(default = "String::from(\"transformer\")")]
    pub name: String,
    /// Seed of the initial values. Default: 0.
    #[config(default = 0)]
    pub seed: u64,
}
