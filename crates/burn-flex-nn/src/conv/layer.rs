//! Convolution as an operation of Burn's graph.

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex};
use burn::module::Param;
use burn::nn::conv::Conv2d;
use burn::tensor::Tensor;

use super::geometry::Geometry;
use super::window::{Window, padded_axes};
use super::{forward, input_gradient, weight_gradient};
use crate::memory::{self, Values};
use crate::on_flex;
use crate::precision::{Precision, lower, lower_beside, precision, raise};
use crate::recomputed::{Factor, if_recomputed};

/// Computes `layer.forward(x)`, with its gradients, several times as fast on `flex`, in the precision of
/// [`with_precision`](crate::with_precision).
///
/// The order of sums depends only on the shapes: the bits are the same on every processor. Products with
/// padding are skipped, so an infinite weight does not turn padding into NaN. It uses one thread. It calls
/// `layer.forward(x)` for other backends, for types other than `f32`, and for convolutions of fewer than four
/// channels per group, such as depthwise ones.
///
/// In memory, the output is `[height][width][samples][channels]`, which the other layers of this crate read
/// without a copy. See [`arrange`](crate::arrange) for the weights.
///
/// # Shapes
///
/// - `x`: `[samples, input channels, height, width]` - output: `[samples, output channels, output height,
/// output width]`
///
/// # Panics
///
/// Panics, as `layer.forward(x)` does, if `x` has another number of channels than the layer, or is smaller
/// than the kernel.
pub fn conv2d(layer: &Conv2d, x: Tensor<4>) -> Tensor<4> {
    if precision() == Precision::F32 {
        return convolve(layer, x);
    }
    let lowered = Conv2d {
        weight: Param::initialized(layer.weight.id, lower_beside(layer.weight.val(), &x)),
        bias: layer.bias.as_ref().map(|bias| Param::initialized(bias.id, lower_beside(bias.val(), &x))),
        ..layer.clone()
    };
    raise(convolve(&lowered, lower(x)))
}

fn convolve(layer: &Conv2d, x: Tensor<4>) -> Tensor<4> {
    let Some(geometry) = geometry(layer, x.dims()).filter(|_| on_flex(&x)) else {
        return layer.forward(x);
    };
    let (x, weight) = (x.into_dispatch(), layer.weight.val().into_dispatch());
    Tensor::from_dispatch(match &layer.bias {
        Some(bias) => {
            <Dispatch as Convolution>::convolve_with_bias(x, weight, bias.val().into_dispatch(), geometry)
        }
        None => <Dispatch as Convolution>::convolve(x, weight, geometry),
    })
}

/// Returns the sizes of a convolution if this crate computes it.
fn geometry(layer: &Conv2d, [samples, channels, height, width]: [usize; 4]) -> Option<Geometry> {
    let [output, input, kernel @ ..] = layer.weight.dims();
    let groups = layer.groups;
    let few = groups > 1 && (input < 4 || output / groups < 4);
    let fits = channels == input * groups && output % groups.max(1) == 0 && kernel == layer.kernel_size;
    if few || !fits || layer.stride.contains(&0) {
        return None;
    }
    let window = Window {
        kernel: layer.kernel_size,
        stride: layer.stride,
        dilation: layer.dilation,
        padding: &layer.padding,
    };
    let [rows, columns] = padded_axes(&window, [height, width])?;
    Some(Geometry { rows, columns, samples, groups, channels: [input, output / groups] })
}

#[burn::backend::backend_extension(Autodiff, Flex)]
trait Convolution: Backend {
    fn convolve(x: FloatTensor<Self>, weight: FloatTensor<Self>, geometry: Geometry) -> FloatTensor<Self>;

    fn convolve_with_bias(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        geometry: Geometry,
    ) -> FloatTensor<Self>;
}

impl Convolution for Flex {
    fn convolve(x: FlexTensor, weight: FlexTensor, geometry: Geometry) -> FlexTensor {
        output(&Values::of_activations(&x), &Values::of_weights(&weight), None, geometry)
    }

    fn convolve_with_bias(
        x: FlexTensor,
        weight: FlexTensor,
        bias: FlexTensor,
        geometry: Geometry,
    ) -> FlexTensor {
        let bias = Values::row_major(&bias);
        output(&Values::of_activations(&x), &Values::of_weights(&weight), Some(&bias), geometry)
    }
}

fn output(x: &[f32], weights: &[f32], bias: Option<&[f32]>, geometry: Geometry) -> FlexTensor {
    let mut values = forward(&geometry, x, weights);
    if let Some(bias) = bias {
        for row in values.chunks_exact_mut(bias.len().max(1)) {
            row.iter_mut().zip(bias).for_each(|(value, bias)| *value += bias);
        }
    }
    let Geometry { rows, columns, samples, groups, channels: [_, channels] } = geometry;
    memory::activations(values, [samples, groups * channels, rows.output, columns.output])
}

impl<C: CheckpointStrategy> Convolution for Autodiff<Flex, C> {
    fn convolve(x: FloatTensor<Self>, weight: FloatTensor<Self>, geometry: Geometry) -> FloatTensor<Self> {
        let recomputed = if_recomputed(&weight);
        let [(x, x_node), (weight, weight_node)] = [x, weight].map(FloatTensor::<Self>::into_parts);
        let saved = Saved { x: Values::of_activations(&x), weights: Values::of_weights(&weight), geometry };
        let output = output(&saved.x, &saved.weights, None, geometry);
        match Backward::<Flex, 2>::prepare::<C>(Convolve, [x_node, weight_node]).compute_bound().stateful() {
            OpsKind::Tracked(mut prepared) => {
                let weights = recomputed.map(|weight| prepared.checkpoint(&weight));
                prepared.finish(Kept::new(saved, weights), output)
            }
            OpsKind::UnTracked(prepared) => prepared.finish(output),
        }
    }

    fn convolve_with_bias(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        geometry: Geometry,
    ) -> FloatTensor<Self> {
        let recomputed = if_recomputed(&weight);
        let [(x, x_node), (weight, weight_node), (bias, bias_node)] =
            [x, weight, bias].map(FloatTensor::<Self>::into_parts);
        let saved = Saved { x: Values::of_activations(&x), weights: Values::of_weights(&weight), geometry };
        let output = output(&saved.x, &saved.weights, Some(&Values::row_major(&bias)), geometry);
        let nodes = [x_node, weight_node, bias_node];
        match Backward::<Flex, 3>::prepare::<C>(Convolve, nodes).compute_bound().stateful() {
            OpsKind::Tracked(mut prepared) => {
                let weights = recomputed.map(|weight| prepared.checkpoint(&weight));
                prepared.finish(Kept::new(saved, weights), output)
            }
            OpsKind::UnTracked(prepared) => prepared.finish(output),
        }
    }
}

/// State for the backward pass, with weights or what computes them again.
#[derive(Clone, Debug)]
struct Kept {
    x: Values,
    weights: Factor<Values>,
    geometry: Geometry,
}

impl Kept {
    fn new(Saved { x, weights, geometry }: Saved, node: Option<NodeId>) -> Self {
        Kept { x, weights: Factor::new(weights, node), geometry }
    }

    fn saved(self, states: &mut Checkpointer) -> Saved {
        let Kept { x, weights, geometry } = self;
        Saved { x, weights: weights.get(states, Values::of_weights), geometry }
    }
}

/// Input and weights of a convolution.
#[derive(Clone, Debug)]
struct Saved {
    x: Values,
    weights: Values,
    geometry: Geometry,
}

impl Saved {
    /// Registers the gradients, weights first: a hook may have to send their gradient to other workers.
    fn register(&self, [x, weight]: [Option<NodeId>; 2], gradient: &[f32], gradients: &mut Gradients) {
        if let Some(node) = weight {
            gradients.register::<Flex>(node, self.weight_gradient(gradient));
        }
        if let Some(node) = x {
            gradients.register::<Flex>(node, self.input_gradient(gradient));
        }
    }

    fn weight_gradient(&self, gradient: &[f32]) -> FlexTensor {
        let Geometry { rows, columns, groups, channels: [input, output], .. } = self.geometry;
        let values = weight_gradient(&self.geometry, &self.x, gradient);
        memory::weights(values, [groups * output, input, rows.kernel, columns.kernel])
    }

    fn input_gradient(&self, gradient: &[f32]) -> FlexTensor {
        let Geometry { rows, columns, samples, groups, channels: [input, _] } = self.geometry;
        let values = input_gradient(&self.geometry, gradient, &self.weights);
        memory::activations(values, [samples, groups * input, rows.input, columns.input])
    }
}

#[derive(Debug)]
struct Convolve;

impl Backward<Flex, 2> for Convolve {
    type State = Kept;

    fn backward(self, ops: Ops<Kept, 2>, gradients: &mut Gradients, states: &mut Checkpointer) {
        let gradient = Values::of_activations(&gradients.consume::<Flex>(&ops.node));
        let parents = ops.parents.map(|node| Some(node?.id));
        ops.state.saved(states).register(parents, &gradient, gradients);
    }
}

impl Backward<Flex, 3> for Convolve {
    type State = Kept;

    fn backward(self, ops: Ops<Kept, 3>, gradients: &mut Gradients, states: &mut Checkpointer) {
        let gradient = Values::of_activations(&gradients.consume::<Flex>(&ops.node));
        let [x, weight, bias] = ops.parents;
        if let Some(node) = bias {
            let Geometry { groups, channels: [_, channels], .. } = ops.state.geometry;
            gradients.register::<Flex>(node.id, memory::vector(column_sums(&gradient, groups * channels)));
        }
        let parents = [x, weight].map(|node| Some(node?.id));
        ops.state.saved(states).register(parents, &gradient, gradients);
    }
}

fn column_sums(values: &[f32], columns: usize) -> Vec<f32> {
    let mut sums = vec![0.0; columns];
    for row in values.chunks_exact(columns.max(1)) {
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value));
    }
    sums.into_iter().map(|sum: f64| sum as f32).collect()
}
