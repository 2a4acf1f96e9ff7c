//! Linear layer, with what often follows it: a bias, and a GELU or the sum with a residual stream.
//!
//! The product is computed by the tiles of the convolutions. What follows is done while a tile's values are
//! in the cache, and the gradient of the bias while the product for the weights reads the output's gradient.

use std::mem::MaybeUninit;
use std::ops::Range;

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex};
use burn::nn::Linear;
use burn::tensor::{Shape, Tensor, module};

use crate::gelu::{gelu, multiplied, value_and_slope};
use crate::memory::{Values, row_major, vector};
use crate::on_flex;
use crate::precision::{Precision, lower, precision, raise};
use crate::product::matmul;
use crate::tiles::{Beside, Matrix, multiply};

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
    let (x, weight, bias) = (lower(x), lower(weight), lower(bias));
    raise(match is_ours {
        true => {
            let [x, weight, bias] = [x.into_dispatch(), weight.into_dispatch(), bias.into_dispatch()];
            Tensor::from_dispatch(<Dispatch as LinearLayer>::linear(x, weight, bias, false))
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
    check(layer, &x);
    let weight = layer.weight.val();
    match &layer.bias {
        Some(bias) if precision() == Precision::F32 && is_ours(&x, &weight) => {
            let [x, weight, bias] = [x.into_dispatch(), weight.into_dispatch(), bias.val().into_dispatch()];
            Tensor::from_dispatch(<Dispatch as LinearLayer>::linear(x, weight, bias, true))
        }
        _ => gelu(linear(layer, x)),
    }
}

/// Computes `residual + linear(layer, x)`. On `flex` it is one operation of the graph, except in a lower
/// precision.
///
/// # Shapes
///
/// - `x`: `[…, inputs]` - `residual`, output: `[…, outputs]`
///
/// # Panics
///
/// Panics if `x` has another width than the layer, or if `residual` has another shape than the output.
pub fn linear_add<const D: usize>(layer: &Linear, x: Tensor<D>, residual: Tensor<D>) -> Tensor<D> {
    check(layer, &x);
    let weight = layer.weight.val();
    let shape = with_last(x.dims(), weight.dims()[1]);
    assert_eq!(residual.dims(), shape, "a residual for an output of {shape:?}");
    match &layer.bias {
        Some(bias) if precision() == Precision::F32 && is_ours(&x, &weight) => {
            let [weight, bias] = [weight.into_dispatch(), bias.val().into_dispatch()];
            let [x, residual] = [x.into_dispatch(), residual.into_dispatch()];
            Tensor::from_dispatch(<Dispatch as LinearLayer>::linear_add(x, weight, bias, residual))
        }
        _ => residual + linear(layer, x),
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
        with_gelu: bool,
    ) -> FloatTensor<Self>;

    fn linear_add(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        residual: FloatTensor<Self>,
    ) -> FloatTensor<Self>;
}

impl LinearLayer for Flex {
    fn linear(x: FlexTensor, weight: FlexTensor, bias: FlexTensor, with_gelu: bool) -> FlexTensor {
        let inputs = Inputs::new(&x, &weight);
        if with_gelu { inputs.forward(&bias, Gelu { slopes: None }) } else { inputs.forward(&bias, ()) }
    }

    fn linear_add(x: FlexTensor, weight: FlexTensor, bias: FlexTensor, residual: FlexTensor) -> FlexTensor {
        Inputs::new(&x, &weight).forward_adding(&bias, &residual)
    }
}

impl<C: CheckpointStrategy> LinearLayer for Autodiff<Flex, C> {
    fn linear(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        with_gelu: bool,
    ) -> FloatTensor<Self> {
        let [(x, x_node), (weight, weight_node), (bias, bias_node)] =
            [x, weight, bias].map(FloatTensor::<Self>::into_parts);
        let nodes = [x_node, weight_node, bias_node];
        match Backward::<Flex, 3>::prepare::<C>(LinearOp, nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let inputs = Inputs::new(&x, &weight);
                let (output, slopes) = inputs.forward_with_slopes(&bias, with_gelu);
                prepared.finish((inputs, slopes), output)
            }
            OpsKind::UnTracked(prepared) => {
                prepared.finish(<Flex as LinearLayer>::linear(x, weight, bias, with_gelu))
            }
        }
    }

    fn linear_add(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        residual: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let [(x, x_node), (weight, weight_node), (bias, bias_node), (residual, residual_node)] =
            [x, weight, bias, residual].map(FloatTensor::<Self>::into_parts);
        let inputs = Inputs::new(&x, &weight);
        let output = inputs.forward_adding(&bias, &residual);
        let nodes = [x_node, weight_node, bias_node, residual_node];
        match Backward::<Flex, 4>::prepare::<C>(LinearAddOp, nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish(inputs, output),
            OpsKind::UnTracked(prepared) => prepared.finish(output),
        }
    }
}

#[derive(Debug)]
struct LinearOp;

impl Backward<Flex, 3> for LinearOp {
    /// Inputs, and the slopes of the GELU.
    type State = (Inputs, Option<Vec<f32>>);

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = Values::row_major(&gradients.consume::<Flex>(&ops.node));
        let (inputs, slopes) = ops.state;
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
    type State = Inputs;

    fn backward(self, ops: Ops<Inputs, 4>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<Flex>(&ops.node);
        let [x, weight, bias, residual] = ops.parents.map(|parent| parent.map(|parent| parent.id));
        ops.state.backward(&Values::row_major(&gradient), [x, weight, bias], gradients);
        if let Some(node) = residual {
            gradients.register::<Flex>(node, gradient);
        }
    }
}

#[derive(Clone, Debug)]
struct Inputs {
    x: Values,
    weight: Values,
}

impl Inputs {
    fn new(x: &FlexTensor, weight: &FlexTensor) -> Self {
        Inputs { x: Values::row_major(x), weight: Values::row_major(weight) }
    }

    fn x(&self) -> Matrix<'_> {
        Matrix::row_major(&self.x, self.weight.shape()[0])
    }

    fn weight(&self) -> Matrix<'_> {
        Matrix::row_major(&self.weight, self.weight.shape()[1])
    }

    fn output_shape(&self) -> Shape {
        let mut shape = self.x.shape();
        *shape.last_mut().expect("an axis of inputs") = self.weight.shape()[1];
        shape
    }

    fn forward(&self, bias: &FlexTensor, then: impl Beside) -> FlexTensor {
        let output = multiply(self.x(), self.weight(), Some(&Values::row_major(bias)), then);
        row_major(output, self.output_shape())
    }

    fn forward_adding(&self, bias: &FlexTensor, residual: &FlexTensor) -> FlexTensor {
        self.forward(bias, Residual(&Values::row_major(residual), self.weight.shape()[1]))
    }

    fn forward_with_slopes(&self, bias: &FlexTensor, with_gelu: bool) -> (FlexTensor, Option<Vec<f32>>) {
        if !with_gelu {
            return (self.forward(bias, ()), None);
        }
        let len = self.output_shape().num_elements();
        let mut slopes = Vec::with_capacity(len);
        let into = &mut slopes.spare_capacity_mut()[..len];
        let output = self.forward(bias, Gelu { slopes: Some((into, self.weight.shape()[1])) });
        // SAFETY: every row of every panel was finished.
        unsafe { slopes.set_len(len) };
        (output, Some(slopes))
    }

    fn backward(&self, gradient: &[f32], parents: [Option<NodeId>; 3], gradients: &mut Gradients) {
        let [x, weight, bias] = parents;
        let outputs = self.weight.shape()[1];
        let of_output = Matrix::row_major(gradient, outputs);
        if let Some(node) = x {
            let of_x = multiply(of_output, self.weight().transposed(), None, ());
            gradients.register::<Flex>(node, row_major(of_x, self.x.shape()));
        }
        let mut sums = ColumnSums(vec![0.0; outputs]);
        match weight {
            Some(node) => {
                let of_weight = multiply(self.x().transposed(), of_output, None, &mut sums);
                gradients.register::<Flex>(node, row_major(of_weight, self.weight.shape()));
            }
            None => (&mut sums).read(0..outputs, gradient, outputs),
        }
        if let Some(node) = bias {
            gradients.register::<Flex>(node, vector(sums.0.into_iter().map(|sum| sum as f32).collect()));
        }
    }
}

/// Applies GELU, and writes its slopes into rows of a width.
struct Gelu<'a> {
    slopes: Option<(&'a mut [MaybeUninit<f32>], usize)>,
}

impl Beside for Gelu<'_> {
    #[inline(always)]
    fn finish(&mut self, row: usize, columns: Range<usize>, values: &mut [f32]) {
        match &mut self.slopes {
            Some((slopes, width)) => {
                let slopes = &mut slopes[row * *width..][columns];
                for (value, slope) in values.iter_mut().zip(slopes) {
                    let [gelu, at] = value_and_slope(*value);
                    *value = gelu;
                    slope.write(at);
                }
            }
            None => values.iter_mut().for_each(|value| *value = value_and_slope(*value)[0]),
        }
    }
}

/// Adds rows of a width.
struct Residual<'a>(&'a [f32], usize);

impl Beside for Residual<'_> {
    #[inline(always)]
    fn finish(&mut self, row: usize, columns: Range<usize>, values: &mut [f32]) {
        let residual = &self.0[row * self.1..][columns];
        values.iter_mut().zip(residual).for_each(|(value, residual)| *value += residual);
    }
}

/// Sums of columns, in double precision.
struct ColumnSums(Vec<f64>);

impl Beside for &mut ColumnSums {
    #[inline(always)]
    fn read(&mut self, columns: Range<usize>, packed: &[f32], width: usize) {
        let sums = &mut self.0[columns];
        for row in packed.chunks_exact(width) {
            sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value));
        }
    }
}
