//! Feed-forward network of a transformer: two linear layers with a GELU between them, dropout, and the sum with
//! the residual stream.
//!
//! As one operation of the graph, it multiplies by the GELU's slopes where the product of the backward pass
//! writes the gradient of the hidden values.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex};
use burn::nn::Linear;
use burn::tensor::Tensor;

use super::inputs::{Gelu, Inputs, Slopes, masked};
use super::layer::{check, check_added, is_ours, linear_add, linear_gelu, with_last};
use crate::dropout_mask::DropoutMask;
use crate::memory::Values;
use crate::precision::{Precision, precision};

/// Computes `residual + outer(gelu(inner(x)))`, with elements of the outer layer's output dropped by a mask. On
/// `flex` it is one operation of the graph, except in a lower precision.
///
/// # Shapes
///
/// - `x`: `[…, inputs]` - `residual`, output: `[…, outputs]` - `mask`: a row for each of all rows of outputs
///
/// # Panics
///
/// Panics if the layers do not follow each other, if `x` has another width than the inner one, or if `residual`
/// or `mask` has another shape than the output.
pub fn feed_forward<const D: usize>(
    inner: &Linear,
    outer: &Linear,
    x: Tensor<D>,
    residual: Tensor<D>,
    mask: Option<DropoutMask>,
) -> Tensor<D> {
    check(inner, &x);
    let [inner_weight, outer_weight] = [inner, outer].map(|layer| layer.weight.val());
    let ([_, hidden], [inputs, outputs]) = (inner_weight.dims(), outer_weight.dims());
    assert_eq!(hidden, inputs, "an outer layer of {inputs} inputs for {hidden} hidden values");
    check_added(with_last(x.dims(), outputs), &residual, &mask);
    let is_ours = precision() == Precision::F32 && is_ours(&x, &inner_weight) && is_ours(&x, &outer_weight);
    let (Some(inner_bias), Some(outer_bias), true) = (&inner.bias, &outer.bias, is_ours) else {
        return linear_add(outer, linear_gelu(inner, x), residual, mask);
    };
    let layers = [inner_weight, outer_weight].map(Tensor::into_dispatch);
    let biases = [inner_bias.val(), outer_bias.val()].map(Tensor::into_dispatch);
    let ([inner_weight, outer_weight], [inner_bias, outer_bias]) = (layers, biases);
    let [x, residual] = [x, residual].map(Tensor::into_dispatch);
    Tensor::from_dispatch(<Dispatch as FeedForward>::feed_forward(
        x,
        inner_weight,
        inner_bias,
        outer_weight,
        outer_bias,
        residual,
        mask,
    ))
}

#[burn::backend::backend_extension(Autodiff, Flex)]
trait FeedForward: Backend {
    fn feed_forward(
        x: FloatTensor<Self>,
        inner_weight: FloatTensor<Self>,
        inner_bias: FloatTensor<Self>,
        outer_weight: FloatTensor<Self>,
        outer_bias: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        mask: Option<DropoutMask>,
    ) -> FloatTensor<Self>;
}

impl FeedForward for Flex {
    fn feed_forward(
        x: FlexTensor,
        inner_weight: FlexTensor,
        inner_bias: FlexTensor,
        outer_weight: FlexTensor,
        outer_bias: FlexTensor,
        residual: FlexTensor,
        mask: Option<DropoutMask>,
    ) -> FlexTensor {
        let hidden = Inputs::new(&x, &inner_weight).forward(&inner_bias, Gelu { slopes: None });
        Inputs::new(&hidden, &outer_weight).forward_adding(&outer_bias, &residual, mask.as_ref())
    }
}

impl<C: CheckpointStrategy> FeedForward for Autodiff<Flex, C> {
    fn feed_forward(
        x: FloatTensor<Self>,
        inner_weight: FloatTensor<Self>,
        inner_bias: FloatTensor<Self>,
        outer_weight: FloatTensor<Self>,
        outer_bias: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        mask: Option<DropoutMask>,
    ) -> FloatTensor<Self> {
        let [(x, x_node), (inner_weight, inner_weight_node), (inner_bias, inner_bias_node)] =
            [x, inner_weight, inner_bias].map(FloatTensor::<Self>::into_parts);
        let [(outer_weight, outer_weight_node), (outer_bias, outer_bias_node), (residual, residual_node)] =
            [outer_weight, outer_bias, residual].map(FloatTensor::<Self>::into_parts);
        let nodes =
            [x_node, inner_weight_node, inner_bias_node, outer_weight_node, outer_bias_node, residual_node];
        match Backward::<Flex, 6>::prepare::<C>(FeedForwardOp, nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let inner = Inputs::new(&x, &inner_weight);
                let (hidden, slopes) = inner.forward_with_slopes(&inner_bias);
                let outer = Inputs::new(&hidden, &outer_weight);
                let output = outer.forward_adding(&outer_bias, &residual, mask.as_ref());
                prepared.finish(Saved { inner, slopes, outer, mask }, output)
            }
            OpsKind::UnTracked(prepared) => prepared.finish(<Flex as FeedForward>::feed_forward(
                x,
                inner_weight,
                inner_bias,
                outer_weight,
                outer_bias,
                residual,
                mask,
            )),
        }
    }
}

/// State for the backward pass.
#[derive(Clone, Debug)]
struct Saved {
    inner: Inputs,
    /// Slope of the GELU at each hidden value.
    slopes: Vec<f32>,
    outer: Inputs,
    mask: Option<DropoutMask>,
}

#[derive(Debug)]
struct FeedForwardOp;

impl Backward<Flex, 6> for FeedForwardOp {
    type State = Saved;

    fn backward(self, ops: Ops<Saved, 6>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<Flex>(&ops.node);
        let Saved { inner, slopes, outer, mask } = ops.state;
        let parents = ops.parents.map(|parent| parent.map(|parent| parent.id));
        let [x, inner_weight, inner_bias, outer_weight, outer_bias, residual] = parents;
        {
            let gradient = Values::row_major(&gradient);
            let of_output = masked(&gradient, mask.as_ref());
            outer.register_parameters(&of_output, [outer_weight, outer_bias], gradients);
            if [x, inner_weight, inner_bias].iter().any(Option::is_some) {
                let of_hidden = outer.of_x(&of_output, Slopes { slopes: &slopes, width: inner.outputs() });
                inner.backward(&of_hidden, [x, inner_weight, inner_bias], gradients);
            }
        }
        if let Some(node) = residual {
            gradients.register::<Flex>(node, gradient);
        }
    }
}
