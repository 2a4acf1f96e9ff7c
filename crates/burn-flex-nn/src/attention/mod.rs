//! Multi-head scaled dot-product attention (Vaswani et al.,
//! [arXiv:1706.03762](https://arxiv.org/abs/1706.03762), equation 1), as one operation of the graph.
//!
//! It reads queries, keys and values side by side, as one linear layer writes them, and writes output and
//! gradients the same way: nothing is permuted. The backward pass needs the weights, which are kept.

mod kernel;
mod softmax;

use std::sync::Arc;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex};
use burn::tensor::{Bool, Shape, Tensor, TensorData, activation};

use self::kernel::{Sizes, Weights};
use self::softmax::Rows;
use crate::dropout_mask::DropoutMask;
use crate::memory::{Values, row_major};
use crate::on_flex;
use crate::precision::{lower, raise};

/// Heads and masks of an attention.
#[derive(Clone, Debug, Default)]
pub struct Attention {
    /// Number of heads; it divides the width.
    pub heads: usize,
    /// True if a position sees only itself and earlier ones.
    pub causal: bool,
    /// True for padding, which no position may attend to: `[batch, time]`.
    pub padding: Option<Tensor<2, Bool>>,
    /// Dropout of the weights after softmax: a row for each query of each head of each sequence, and a column
    /// for each key.
    pub weight_mask: Option<DropoutMask>,
}

/// Computes softmax(q·kᵀ / √d) · v for each head. d is the width of a head, and q, k and v are the head's
/// columns of each third of `qkv`. A position that can attend to nothing has an output of 0.
///
/// # Shapes
///
/// - `qkv`: `[batch, time, 3 · width]`; queries, keys and values side by side - output: `[batch, time,
/// width]`, the heads side by side
///
/// # Panics
///
/// Panics if the width of `qkv` is not a multiple of 3 · heads, or if padding or mask have another shape.
pub fn self_attention(qkv: Tensor<3>, attention: Attention) -> Tensor<3> {
    let [batch, time, width] = qkv.dims();
    let Attention { heads, causal, padding, weight_mask } = attention;
    let qkv = lower(qkv);
    assert!(
        heads > 0 && width % (3 * heads) == 0,
        "a width of {width} for queries, keys and values of {heads} heads"
    );
    let sizes = Sizes { batch, time, heads, head: width / (3 * heads) };
    if let Some(padding) = &padding {
        assert_eq!(padding.dims(), [batch, time], "padding of {batch} sequences of {time}");
    }
    if let Some([rows, columns]) = weight_mask.as_ref().map(DropoutMask::dims) {
        let expected = sizes.rows_of_weights();
        assert_eq!(
            [rows, columns],
            expected,
            "a mask of {rows} rows of {columns} for weights of {expected:?}"
        );
    }
    // Burn's operations do not accept empty tensors.
    if qkv.dims().contains(&0) {
        return raise(qkv.reshape([batch, time, width / 3]));
    }
    if !on_flex(&qkv) {
        return raise(composed(qkv, sizes, causal, padding, weight_mask));
    }
    let padding = padding.map(|padding| padding.into_data().iter::<bool>().collect());
    let masks = Masks { causal, padding, dropout: weight_mask.map(Arc::new) };
    raise(Tensor::from_dispatch(<Dispatch as SelfAttention>::attention(qkv.into_dispatch(), sizes, masks)))
}

/// Same with Burn's operations.
fn composed(
    qkv: Tensor<3>,
    sizes: Sizes,
    causal: bool,
    padding: Option<Tensor<2, Bool>>,
    mask: Option<DropoutMask>,
) -> Tensor<3> {
    /// Less than any score, but finite, so that a row of only this value has no NaN.
    const HIDDEN: f32 = -1e30;
    let Sizes { batch, time, heads, head } = sizes;
    let device = qkv.device();
    let [q, k, v]: [Tensor<4>; 3] = std::array::from_fn(|third| {
        let width = heads * head;
        qkv.clone().narrow(2, third * width, width).reshape([batch, time, heads, head]).swap_dims(1, 2)
    });
    let mut hidden: Option<Tensor<4, Bool>> =
        causal.then(|| Tensor::<2, Bool>::tril_mask([time, time], 0, &device).reshape([1, 1, time, time]));
    if let Some(padding) = padding {
        let padding = padding.reshape([batch, 1, 1, time]).expand([batch, 1, time, time]);
        hidden = Some(match hidden {
            Some(causal) => padding.bool_or(causal.expand([batch, 1, time, time])),
            None => padding,
        });
    }
    let mut weights = raise(q.matmul(k.transpose())).mul_scalar(sizes.scale());
    weights = match hidden {
        Some(hidden) => {
            let weights = activation::softmax(weights.mask_fill(hidden.clone(), HIDDEN), 3);
            weights.mask_fill(hidden, 0.0)
        }
        None => activation::softmax(weights, 3),
    };
    if let Some(mask) = mask {
        weights =
            weights * Tensor::from_data(TensorData::new(mask.factors(), [batch, heads, time, time]), &device);
    }
    lower(weights).matmul(v).swap_dims(1, 2).reshape([batch, time, heads * head])
}

/// Masks of hidden positions, and of dropout among the others.
#[derive(Clone, Debug)]
struct Masks {
    causal: bool,
    padding: Option<Vec<bool>>,
    dropout: Option<Arc<DropoutMask>>,
}

impl Masks {
    fn rows(&self, sizes: Sizes) -> Rows<'_> {
        Rows {
            heads: sizes.heads,
            time: sizes.time,
            scale: sizes.scale(),
            causal: self.causal,
            padding: self.padding.as_deref(),
        }
    }

    fn dropout(&self) -> Option<&DropoutMask> {
        self.dropout.as_deref()
    }
}

#[burn::backend::backend_extension(Autodiff, Flex)]
trait SelfAttention: Backend {
    fn attention(qkv: FloatTensor<Self>, sizes: Sizes, masks: Masks) -> FloatTensor<Self>;
}

impl SelfAttention for Flex {
    fn attention(qkv: FlexTensor, sizes: Sizes, masks: Masks) -> FlexTensor {
        forward(&qkv, sizes, masks).0
    }
}

impl<C: CheckpointStrategy> SelfAttention for Autodiff<Flex, C> {
    fn attention(qkv: FloatTensor<Self>, sizes: Sizes, masks: Masks) -> FloatTensor<Self> {
        let (qkv, node) = qkv.into_parts();
        let (output, saved) = forward(&qkv, sizes, masks);
        match Backward::<Flex, 1>::prepare::<C>(AttentionOp, [node]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish(saved, output),
            OpsKind::UnTracked(prepared) => prepared.finish(output),
        }
    }
}

/// State for the backward pass.
#[derive(Clone, Debug)]
struct Saved {
    qkv: Values,
    /// Weights before dropout.
    weights: Weights,
    sizes: Sizes,
    masks: Masks,
}

#[derive(Debug)]
struct AttentionOp;

impl Backward<Flex, 1> for AttentionOp {
    type State = Saved;

    fn backward(self, ops: Ops<Saved, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = Values::row_major(&gradients.consume::<Flex>(&ops.node));
        let [Some(parent)] = ops.parents else { return };
        let Saved { qkv, weights, sizes, masks } = ops.state;
        let of_qkv = kernel::backward(&qkv, sizes, masks.rows(sizes), masks.dropout(), weights, &gradient);
        gradients.register::<Flex>(parent.id, row_major(of_qkv, qkv.shape()));
    }
}

fn forward(qkv: &FlexTensor, sizes: Sizes, masks: Masks) -> (FlexTensor, Saved) {
    let qkv = Values::row_major(qkv);
    let (output, weights) = kernel::forward(&qkv, sizes, masks.rows(sizes), masks.dropout());
    let shape = Shape::new([sizes.batch, sizes.time, sizes.heads * sizes.head]);
    (row_major(output, shape), Saved { qkv, weights, sizes, masks })
}

#[cfg(test)]
mod tests;
