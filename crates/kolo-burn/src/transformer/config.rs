//! What a transformer looks like.

use burn::config::Config;

use super::feed_forward::Activation;

/// Where the layer normalisations stand.
#[derive(Config, Debug, Copy, PartialEq, Eq)]
pub enum Norm {
    /// x + f(norm(x)), and one more normalisation behind the last block (Radford et al. 2019; Xiong et al.
    /// 2020, [arXiv:2002.04745](https://arxiv.org/abs/2002.04745), figure 1b). It trains without a warm-up of
    /// the learning rate.
    Pre,
    /// norm(x + f(x)), as in Vaswani et al. 2017, section 3.1.
    Post,
}

/// Configuration of a [`Transformer`](super::Transformer). By default it is GPT-2's.
#[derive(Config, Debug)]
pub struct TransformerConfig {
    /// Width of the residual stream.
    pub width: usize,
    /// Heads of each attention; they divide the width.
    pub heads: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Width between the layers of the feed-forward networks. Default: 4 · `width`.
    pub hidden: Option<usize>,
    /// Whether a position sees itself and what comes before only. Default: yes.
    #[config(default = true)]
    pub causal: bool,
    /// Share of attention weights, attention outputs and feed-forward outputs that a training step drops.
    /// Default: 0.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// Activation of the feed-forward networks. Default: GELU.
    #[config(default = "Activation::Gelu")]
    pub activation: Activation,
    /// Where the layer normalisations stand. Default: before attention and feed-forward network.
    #[config(default = "Norm::Pre")]
    pub norm: Norm,
    /// By what dropout and initial values tell this transformer from others of the same model: another name
    /// for each. Default: `transformer`.
    #[config(default = "String::from(\"transformer\")")]
    pub name: String,
    /// Seed of the initial values. Default: 0.
    #[config(default = 0)]
    pub seed: u64,
}
