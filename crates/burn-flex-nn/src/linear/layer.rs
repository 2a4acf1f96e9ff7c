//! Linear layer with a bias, and with a GELU, or with dropout and the sum with a residual stream.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex};
use burn::nn::Linear;
use burn::tensor::{Tensor, TensorData, module};

use super::inputs::{Gelu, Inputs, Saved, masked};
use crate::dropout_mask::DropoutMask;
use crate::gelu::{Unit, multiplied};
use crate::memory::Values;
use crate::on_flex;
use crate::precision::{Precision, lower, lower_beside, precision, raise};
use crate::product::matmul;
use crate::recomputed::if_recomputed;

/// Computes `layer.forward(x)` in the precision of [`with_precision`](crate::with_precision).
///
/// On `flex` the order of additions depends only on the shapes: the bits are the same on every processor.
///
/// # Shapes
///
/// - `x`: `[…, inputs]` - output: `[…, outputs]`
///
/// # Panics
///
/// Panics if `x` has another width than the layer.
pub fn linear<const D: usize>(layer: &Linear, x: Tensor<D>) -> Tensor<D> {
    check(layer, &x);
    let weight = layer.weight.val();
    let is_ours = is_ours(&x, &weight);
    let Some(bias) = layer.bias.as_ref().map(|bias| bias.val()) else {
        let (dims, [width, outputs]) = (x.dims(), weight.dims());
        return match is_ours {
            true => matmul(x.reshape([-1, width as isize]), weight).reshape(with_last(dims, outputs)),
            false => raise(module::linear(lower(x), lower(weight), None)),
        };
    };
    let (weight, bias) = (lower_beside(weight, &x), lower_beside(bias, &x));
    let x = lower(x);
    raise(match is_ours {
        true => {
            let [x, weight, bias] = [x.into_dispatch(), weight.into_dispatch(), bias.into_dispatch()];
            Tensor::from_dispatch(<Dispatch as LinearLayer>::linear(x, weight, bias, None))
        }
        false => module::linear(x, weight, Some(bias)),
    })
}

/// Computes `gelu(linear(layer, x))`. On `flex` it is one operation of the graph, except in a lower
/// precision.
///
/// # Shapes
///
/// - `x`: `[…, inputs]` - output: `[…, outputs]`
///
/// # Panics
///
/// Panics if `x` has another width than the layer.
pub fn linear_gelu<const D: usize>(layer: &Linear, x: Tensor<D>) -> Tensor<D> {
    linear_unit(layer, x, Unit::Normal)
}

/// Computes `gelu_tanh(linear(layer, x))`: see [`linear_gelu`].
///
/// # Shapes
///
/// See [`linear_gelu`].
///
/// # Panics
///
/// See [`linear_gelu`].
pub fn linear_gelu_tanh<const D: usize>(layer: &Linear, x: Tensor<D>) -> Tensor<D> {
    linear_unit(layer, x, Unit::Tanh)
}

fn linear_unit<const D: usize>(layer: &Linear, x: Tensor<D>, unit: Unit) -> Tensor<D> {
    check(layer, &x);
    let weight = layer.weight.val();
    match &layer.bias {
        Some(bias) if precision() == Precision::F32 && is_ours(&x, &weight) => {
            let [x, weight, bias] = [x.into_dispatch(), weight.into_dispatch(), bias.val().into_dispatch()];
            Tensor::from_dispatch(<Dispatch as LinearLayer>::linear(x, weight, bias, Some(unit)))
        }
        _ => unit.of(linear(layer, x)),
    }
}

/// Computes `residual + linear(layer, x)`, with elements of the layer's output dropped by a mask. On `flex`
/// it is one operation of the graph, except in a lower precision.
///
/// # Shapes
///
/// - `x`: `[…, inputs]` - `residual`, output: `[…, outputs]` - `mask`: a row for each of all rows of outputs
///
/// # Panics
///
/// Panics if `x` has another width than the layer, or if `residual` or `mask` has another shape than the
/// output.
pub fn linear_add<const D: usize>(
    layer: &Linear,
    x: Tensor<D>,
    residual: Tensor<D>,
    mask: Option<DropoutMask>,
) -> Tensor<D> {
    check(layer, &x);
    let weight = layer.weight.val();
    check_added(with_last(x.dims(), weight.dims()[1]), &residual, &mask);
    match &layer.bias {
        Some(bias) if precision() == Precision::F32 && is_ours(&x, &weight) => {
            let [weight, bias] = [weight.into_dispatch(), bias.val().into_dispatch()];
            let [x, residual] = [x.into_dispatch(), residual.into_dispatch()];
            Tensor::from_dispatch(<Dispatch as LinearLayer>::linear_add(x, weight, bias, residual, mask))
        }
        _ => residual + dropped(linear(layer, x), mask),
    }
}

/// Multiplies by the factors of a mask with Burn's operations.
fn dropped<const D: usize>(x: Tensor<D>, mask: Option<DropoutMask>) -> Tensor<D> {
    match mask {
        Some(mask) => {
            let factors = TensorData::new(mask.factors(), x.dims());
            let factors = Tensor::from_data(factors, &x.device());
            x * factors
        }
        None => x,
    }
}

/// Checks what is added to an output of a shape.
fn check_added<const D: usize>(shape: [usize; D], residual: &Tensor<D>, mask: &Option<DropoutMask>) {
    assert_eq!(residual.dims(), shape, "a residual for an output of {shape:?}");
    if let Some([rows, columns]) = mask.as_ref().map(DropoutMask::dims) {
        let is_match = columns == shape[D - 1] && rows == shape[..D - 1].iter().product::<usize>();
        assert!(is_match, "a mask of {rows} rows of {columns} for an output of {shape:?}");
    }
}

fn check<const D: usize>(layer: &Linear, x: &Tensor<D>) {
    let [width, _] = layer.weight.dims();
    assert_eq!(x.dims()[D - 1], width, "inputs of a linear layer of {width}");
}

fn with_last<const D: usize>(mut dims: [usize; D], len: usize) -> [usize; D] {
    dims[D - 1] = len;
    dims
}

/// Returns true if this crate multiplies these two.
fn is_ours<const D: usize>(x: &Tensor<D>, weight: &Tensor<2>) -> bool {
    on_flex(x) && on_flex(weight) && !x.dims().contains(&0) && !weight.dims().contains(&0)
}

#[burn::backend::backend_extension(Autodiff, Flex)]
trait LinearLayer: Backend {
    fn linear(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        unit: Option<Unit>,
    ) -> FloatTensor<Self>;

    fn linear_add(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        mask: Option<DropoutMask>,
    ) -> FloatTensor<Self>;
}

impl LinearLayer for Flex {
    fn linear(x: FlexTensor, weight: FlexTensor, bias: FlexTensor, unit: Option<Unit>) -> FlexTensor {
        let inputs = Inputs::new(&x, &weight);
        match unit {
            Some(unit) => inputs.forward(&bias, Gelu { unit, slopes: None }),
            None => inputs.forward(&bias, ()),
        }
    }

    fn linear_add(
        x: FlexTensor,
        weight: FlexTensor,
        bias: FlexTensor,
        residual: FlexTensor,
        mask: Option<DropoutMask>,
    ) -> FlexTensor {
        Inputs::new(&x, &weight).forward_adding(&bias, &residual, mask.as_ref())
    }
}

impl<C: CheckpointStrategy> LinearLayer for Autodiff<Flex, C> {
    fn linear(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        unit: Option<Unit>,
    ) -> FloatTensor<Self> {
        let recomputed = if_recomputed(&weight);
        let [(x, x_node), (weight, weight_node), (bias, bias_node)] =
            [x, weight, bias].map(FloatTensor::<Self>::into_parts);
        let nodes = [x_node, weight_node, bias_node];
        match Backward::<Flex, 3>::prepare::<C>(LinearOp, nodes).compute_bound().stateful() {
            OpsKind::Tracked(mut prepared) => {
                let inputs = Inputs::new(&x, &weight);
                let (output, slopes) = match unit {
                    Some(unit) => {
                        let (output, slopes) = inputs.forward_with_slopes(&bias, unit);
                        (output, Some(slopes))
                    }
                    None => (inputs.forward(&bias, ()), None),
                };
                let weight = recomputed.map(|weight| prepared.checkpoint(&weight));
                prepared.finish((Saved::new(inputs, weight), slopes), output)
            }
            OpsKind::UnTracked(prepared) => {
                prepared.finish(<Flex as LinearLayer>::linear(x, weight, bias, unit))
            }
        }
    }

    fn linear_add(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        mask: Option<DropoutMask>,
    ) -> FloatTensor<Self> {
        let recomputed = if_recomputed(&weight);
        let [(x, x_node), (weight, weight_node), (bias, bias_node), (residual, residual_node)] =
            [x, weight, bias, residual].map(FloatTensor::<Self>::into_parts);
        let inputs = Inputs::new(&x, &weight);
        let output = inputs.forward_adding(&bias, &residual, mask.as_ref());
        let nodes = [x_node, weight_node, bias_node, residual_node];
        match Backward::<Flex, 4>::prepare::<C>(LinearAddOp, nodes).compute_bound().stateful() {
            OpsKind::Tracked(mut prepared) => {
                let weight = recomputed.map(|weight| prepared.checkpoint(&weight));
                prepared.finish((Saved::new(inputs, weight), mask), output)
            }
            OpsKind::UnTracked(prepared) => prepared.finish(output),
        }
    }
}

#[derive(Debug)]
struct LinearOp;

impl Backward<Flex, 3> for LinearOp {
    /// Inputs, and the slopes of the GELU.
    type State = (Saved, Option<Vec<f32>>);

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, states: &mut Checkpointer) {
        let gradient = Values::row_major(&gradients.consume::<Flex>(&ops.node));
        let (saved, slopes) = ops.state;
        let inputs = saved.inputs(states);
        let parents = ops.parents.map(|parent| parent.map(|parent| parent.id));
        match slopes {
            Some(slopes) => inputs.backward(&multiplied(slopes, &gradient), parents, gradients),
            None => inputs.backward(&gradient, parents, gradients),
        }
    }
}

#[derive(Debug)]
struct LinearAddOp;

impl Backward<Flex, 4> for LinearAddOp {
    /// Inputs, and the mask of the output.
    type State = (Saved, Option<DropoutMask>);

    fn backward(self, ops: Ops<Self::State, 4>, gradients: &mut Gradients, states: &mut Checkpointer) {
        let gradient = gradients.consume::<Flex>(&ops.node);
        let [x, weight, bias, residual] = ops.parents.map(|parent| parent.map(|parent| parent.id));
        let (saved, mask) = ops.state;
        let inputs = saved.inputs(states);
        inputs.backward(&masked(&Values::row_major(&gradient), mask.as_ref()), [x, weight, bias], gradients);
        if let Some(node) = residual {
            gradients.register::<Flex>(node, gradient);
        }
    }
}
