//! One layer of a transformer.

use burn::module::Module;
use burn::nn::LayerNorm;
use burn::tensor::{Bool, Device, Tensor};

use super::attention::{SelfAttention, SelfAttentionConfig};
use super::config::{Norm, TransformerConfig};
use super::feed_forward::{FeedForward, FeedForwardConfig};
use super::init::{Init, fork_layer_norm, layer_norm};
use crate::dropout::DropoutKey;

/// Self-attention and feed-forward network, each with a residual connection and a layer normalization. Field
/// names are those of GPT-2.
#[derive(Module, Debug)]
pub struct TransformerBlock {
    /// Normalization before the attention, or after its sum.
    pub ln_1: LayerNorm,
    /// Attention.
    pub attn: SelfAttention,
    /// Normalization before the feed-forward network, or after its sum.
    pub ln_2: LayerNorm,
    /// Feed-forward network.
    pub mlp: FeedForward,
    #[module(skip)]
    norm: Norm,
}

impl TransformerBlock {
    /// Creates the block with this number in a stack, counted from 0. The number keys its dropout and its
    /// initial values.
    ///
    /// # Panics
    ///
    /// Panics as [`TransformerConfig::init`] does.
    pub fn new(config: &TransformerConfig, number: usize, device: &Device) -> Self {
        let init = Init { seed: config.seed, device };
        let name = format!("{}.h.{number}", config.name);
        let residuals = 2 * config.layers;
        let attention = SelfAttentionConfig::new(config.width, config.heads, format!("{name}.attn"))
            .with_causal(config.causal)
            .with_dropout(config.dropout)
            .with_residuals(residuals)
            .with_seed(config.seed);
        let hidden = config.hidden.unwrap_or(4 * config.width);
        let feed_forward = FeedForwardConfig::new(config.width, hidden, format!("{name}.mlp"))
            .with_activation(config.activation)
            .with_dropout(config.dropout)
            .with_residuals(residuals)
            .with_seed(config.seed);
        TransformerBlock {
            ln_1: init.layer_norm(config.width),
            attn: attention.init(device),
            ln_2: init.layer_norm(config.width),
            mlp: feed_forward.init(device),
            norm: config.norm,
        }
    }

    /// Runs the forward pass, with the shapes, arguments and panics of [`SelfAttention::forward`].
    pub fn forward(
        &self,
        x: Tensor<3>,
        padding: Option<&Tensor<2, Bool>>,
        dropout: Option<&DropoutKey>,
    ) -> Tensor<3> {
        match self.norm {
            Norm::Pre => {
                let [x, normalized] = fork_layer_norm(&self.ln_1, x);
                let x = self.attn.added(x, normalized, padding, dropout);
                let [x, normalized] = fork_layer_norm(&self.ln_2, x);
                self.mlp.added(x, normalized, dropout)
            }
            Norm::Post => {
                let x = layer_norm(&self.ln_1, self.attn.added(x.clone(), x, padding, dropout));
                layer_norm(&self.ln_2, self.mlp.added(x.clone(), x, dropout))
            }
        }
    }
}
