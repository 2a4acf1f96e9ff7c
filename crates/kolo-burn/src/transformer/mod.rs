//! Transformers with dropout that depends on no worker: attention, feed-forward network, block and stack.
//!
//! The layers are Burn's. The arithmetic between them is that of burn-flex-nn on `flex`, and Burn's
//! elsewhere. Every dropout has its own name, set when its layer is built. A [`DropoutKey`] gives the
//! position of a forward pass in the training; without a key, nothing is dropped.

mod attention;
mod block;
mod config;
mod feed_forward;
mod init;
#[cfg(test)]
mod tests;

use burn::module::Module;
use burn::nn::LayerNorm;
use burn::tensor::{Bool, Device, Tensor};

pub use self::attention::{SelfAttention, SelfAttentionConfig};
pub use self::block::TransformerBlock;
pub use self::config::{Norm, TransformerConfig};
pub use self::feed_forward::{Activation, FeedForward, FeedForwardConfig};
use self::init::{Init, layer_norm};
use crate::activation_checkpointing::checkpointed;
use crate::dropout::DropoutKey;

/// Stack of blocks (Vaswani et al. 2017, [arXiv:1706.03762](https://arxiv.org/abs/1706.03762), section 3.1;
/// Radford et al. 2019, section 2.3). Names and shapes of its parameters are those of GPT-2's checkpoints:
/// `h.0.attn.c_attn.weight` is `[width, 3 · width]`.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use kolo_burn::{DropoutKey, TransformerConfig};
///
/// let device = Device::flex().autodiff();
/// let transformer = TransformerConfig::new(32, 4, 2).with_dropout(0.1).init(&device);
/// let x = Tensor::<3>::ones([8, 16, 32], &device);
/// let key = DropoutKey { seed: 1, epoch: 0, step: 0, shard: 0 };
/// let training = transformer.forward(x.clone(), Some(&key));
/// let evaluation = transformer.forward(x, None);
/// assert_eq!(training.dims(), evaluation.dims());
/// ```
#[derive(Module, Debug)]
pub struct Transformer {
    /// Blocks, in order of execution.
    pub h: Vec<TransformerBlock>,
    /// Normalization after the last block, if the blocks normalize first ([`Norm::Pre`]).
    pub ln_f: Option<LayerNorm>,
    activation_checkpointing: bool,
}

impl TransformerConfig {
    /// Creates the transformer with GPT-2's initial values. Weights are normal with deviation 0.02, divided
    /// by √(2 · layers) if their outputs are added to the residual stream; biases are 0 (Radford et al. 2019,
    /// section 2.3).
    ///
    /// The values depend only on `seed`, `name` and each parameter's path, so every rank creates the same
    /// ones.
    ///
    /// # Panics
    ///
    /// Panics if the heads do not divide the width, or if dropout is not at least 0 and below 1.
    pub fn init(&self, device: &Device) -> Transformer {
        let blocks = (0..self.layers).map(|number| TransformerBlock::new(self, number, device));
        let ln_f = (self.norm == Norm::Pre).then(|| Init { seed: self.seed, device }.layer_norm(self.width));
        Transformer { h: blocks.collect(), ln_f, activation_checkpointing: self.activation_checkpointing }
    }
}

impl Transformer {
    /// Runs the forward pass. A dropout key means training; `None` means evaluation.
    ///
    /// # Shapes
    ///
    /// - `x`, output: `[batch, time, width]`
    ///
    /// # Panics
    ///
    /// Panics if `x` has another width than the transformer.
    pub fn forward(&self, x: Tensor<3>, dropout: Option<&DropoutKey>) -> Tensor<3> {
        self.blocks(x, None, dropout)
    }

    /// Same as [`Transformer::forward`], for input with padding. No position attends to padding, so the
    /// values there do not affect the output at the other positions.
    ///
    /// # Shapes
    ///
    /// - `x`, output: `[batch, time, width]` - `padding`: `[batch, time]`
    ///
    /// # Panics
    ///
    /// Panics if `x` has another width than the transformer, or if `padding` has another shape.
    pub fn forward_padded(
        &self,
        x: Tensor<3>,
        padding: &Tensor<2, Bool>,
        dropout: Option<&DropoutKey>,
    ) -> Tensor<3> {
        self.blocks(x, Some(padding), dropout)
    }

    fn blocks(
        &self,
        x: Tensor<3>,
        padding: Option<&Tensor<2, Bool>>,
        dropout: Option<&DropoutKey>,
    ) -> Tensor<3> {
        let x = self.h.iter().fold(x, |x, block| {
            if !self.activation_checkpointing {
                return block.forward(x, padding, dropout);
            }
            let (padding, dropout) = (padding.cloned(), dropout.copied());
            checkpointed(block, x, move |block, x| block.forward(x, padding.as_ref(), dropout.as_ref()))
        });
        match &self.ln_f {
            Some(ln_f) => layer_norm(ln_f, x),
            None => x,
        }
    }
}
