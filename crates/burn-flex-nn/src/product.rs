//! Products of matrices and of batches of matrices, by the tiles of the convolutions.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, TensorMetadata};
use burn::tensor::{Shape, Tensor};

use crate::memory::{Values, row_major};
use crate::on_flex;
use crate::precision::{lower_beside, raise};
use crate::recomputed::{self, if_recomputed};
use crate::tiles::{Matrix, add_product, multiply_onto};

/// Computes `a.matmul(b)` in the precision of [`with_precision`](crate::with_precision).
///
/// On `flex` the order of additions depends only on the shapes: the bits are the same on every processor. A
/// factor whose rows or whose columns are contiguous is read in place.
///
/// # Shapes
///
/// - `a`: `[…, rows, inner]` - `b`: `[…, inner, columns]` - output: `[…, rows, columns]`
///
/// Axes of batches are broadcast.
///
/// # Panics
///
/// Panics, as Burn does, if the shapes do not match.
pub fn matmul<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> Tensor<D> {
    let b = lower_beside(b, &a);
    let a = lower_beside(a, &b);
    let is_ours = on_flex(&a) && on_flex(&b) && match_and_have_elements(&a.dims(), &b.dims());
    raise(match is_ours {
        true => Tensor::from_dispatch(<Dispatch as Product>::product(a.into_dispatch(), b.into_dispatch())),
        false => a.matmul(b),
    })
}

fn match_and_have_elements(a: &[usize], b: &[usize]) -> bool {
    let [of_a, of_b] = [a, b].map(|dims| dims.split_at(dims.len().saturating_sub(2)));
    let (&[_, inner], &[rows, _]) = (of_a.1, of_b.1) else { return false };
    let mut batches = of_a.0.iter().zip(of_b.0);
    let is_match = inner == rows && batches.all(|(a, b)| a == b || *a == 1 || *b == 1);
    is_match && !a.contains(&0) && !b.contains(&0)
}

#[burn::backend::backend_extension(Autodiff, Flex)]
trait Product: Backend {
    fn product(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self>;
}

impl Product for Flex {
    fn product(a: FlexTensor, b: FlexTensor) -> FlexTensor {
        Factors::new(&a, &b).product()
    }
}

impl<C: CheckpointStrategy> Product for Autodiff<Flex, C> {
    fn product(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        let recomputed = if_recomputed(&b);
        let [(a, a_node), (b, b_node)] = [a, b].map(FloatTensor::<Self>::into_parts);
        let factors = Factors::new(&a, &b);
        let output = factors.product();
        match Backward::<Flex, 2>::prepare::<C>(ProductOp, [a_node, b_node]).compute_bound().stateful() {
            OpsKind::Tracked(mut prepared) => {
                let Factors { a, b, output: shape } = factors;
                let node = recomputed.map(|b| prepared.checkpoint(&b));
                prepared.finish(Saved { a, b: recomputed::Factor::new(b, node), output: shape }, output)
            }
            OpsKind::UnTracked(prepared) => prepared.finish(output),
        }
    }
}

#[derive(Debug)]
struct ProductOp;

impl Backward<Flex, 2> for ProductOp {
    type State = Saved;

    fn backward(self, ops: Ops<Saved, 2>, gradients: &mut Gradients, states: &mut Checkpointer) {
        let gradient = Values::row_major(&gradients.consume::<Flex>(&ops.node));
        let factors = ops.state.factors(states);
        let Factors { a, b, .. } = &factors;
        let of_output = |batch: usize| factors.matrix_of_output(&gradient, batch);
        let [of_a, of_b] = ops.parents;
        if let Some(node) = of_b {
            let of_b = b.gradient(|batch| a.matrix(batch).transposed(), of_output);
            gradients.register::<Flex>(node.id, of_b);
        }
        if let Some(node) = of_a {
            let of_a = a.gradient(of_output, |batch| b.matrix(batch).transposed());
            gradients.register::<Flex>(node.id, of_a);
        }
    }
}

/// Factors as the backward pass needs them.
#[derive(Clone, Debug)]
struct Saved {
    a: Factor,
    b: recomputed::Factor<Factor>,
    output: Shape,
}

impl Saved {
    fn factors(self, states: &mut Checkpointer) -> Factors {
        let Saved { a, b, output } = self;
        let batch = output[..output.num_dims() - 2].to_vec();
        let of = |b: &FlexTensor| {
            let is_one = b.shape()[..b.shape().num_dims() - 2].iter().all(|len| *len == 1);
            Factor::new(b, if is_one { &[] } else { &batch })
        };
        Factors { a, b: b.get(states, of), output }
    }
}

#[derive(Clone, Debug)]
struct Factors {
    a: Factor,
    b: Factor,
    output: Shape,
}

impl Factors {
    fn new(a: &FlexTensor, b: &FlexTensor) -> Self {
        let axes = a.shape().num_dims();
        let mut output: Vec<usize> = a.shape().iter().zip(b.shape().iter()).map(|(a, b)| *a.max(b)).collect();
        output[axes - 2] = a.shape()[axes - 2];
        output[axes - 1] = b.shape()[axes - 1];
        let batch = &output[..axes - 2];
        let is_one = |tensor: &FlexTensor| tensor.shape()[..axes - 2].iter().all(|len| *len == 1);
        let [a, b] = match is_one(b) {
            // All rows meet the same second factor, as if they were of one matrix.
            true => [Factor::of_all_rows(a), Factor::new(b, &[])],
            false => [a, b].map(|tensor| Factor::new(tensor, batch)),
        };
        Factors { a, b, output: Shape::from(output) }
    }

    fn product(&self) -> FlexTensor {
        let mut output = Vec::with_capacity(self.output.num_elements());
        for batch in 0..self.a.starts.len() {
            multiply_onto(&mut output, self.a.matrix(batch), self.b.matrix(batch));
        }
        row_major(output, self.output.clone())
    }

    fn matrix_of_output<'a>(&self, gradient: &'a [f32], batch: usize) -> Matrix<'a> {
        let len = gradient.len() / self.a.starts.len();
        Matrix::row_major(&gradient[batch * len..][..len], self.b.columns)
    }
}

/// Matrices of the products of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Factor {
    tensor: FlexTensor,
    /// First element of each product's matrix.
    starts: Vec<usize>,
    /// Place of each product's matrix among those of the tensor.
    places: Vec<usize>,
    rows: usize,
    columns: usize,
    /// Distances between rows and between columns; either is 1.
    steps: [usize; 2],
}

impl Factor {
    /// Takes a tensor whose axes before the last two are broadcast to those of a batch.
    pub(crate) fn new(tensor: &FlexTensor, batch: &[usize]) -> Self {
        let axes = tensor.shape().num_dims();
        let strides = tensor.layout().strides();
        let is_readable = strides.iter().all(|step| *step >= 0) && strides[axes - 2..].contains(&1);
        let tensor = if is_readable { tensor.clone() } else { tensor.to_contiguous() };
        let (shape, layout) = (tensor.shape(), tensor.layout());
        let strides: Vec<usize> = layout.strides().iter().map(|step| step.unsigned_abs()).collect();
        let (mut starts, mut places) = (vec![layout.start_offset()], vec![0]);
        for (axis, len) in batch.iter().enumerate() {
            let is_broadcast = shape[axis] == 1;
            let step = if is_broadcast { 0 } else { strides[axis] };
            starts = each(&starts, *len, |start, at| start + at * step);
            let place = |place: usize, at: usize| if is_broadcast { place } else { place * len + at };
            places = each(&places, *len, place);
        }
        let (rows, columns) = (shape[axes - 2], shape[axes - 1]);
        Factor { starts, places, rows, columns, steps: [strides[axes - 2], strides[axes - 1]], tensor }
    }

    /// Takes the rows of all matrices of a tensor as one matrix.
    fn of_all_rows(tensor: &FlexTensor) -> Self {
        let shape = tensor.shape();
        let columns = shape[shape.num_dims() - 1];
        let rows = shape.num_elements() / columns;
        if rows == shape[shape.num_dims() - 2] {
            return Factor::new(tensor, &[]);
        }
        let tensor = tensor.to_contiguous();
        Factor { tensor, starts: vec![0], places: vec![0], rows, columns, steps: [columns, 1] }
    }

    pub(crate) fn matrix(&self, product: usize) -> Matrix<'_> {
        let values = &self.tensor.storage::<f32>()[self.starts[product]..];
        Matrix::new(values, [self.rows, self.columns], self.steps)
    }

    /// Returns the gradient with respect to this factor, in its memory order. The gradient of each product's
    /// matrix is a product of two matrices itself.
    fn gradient<'a>(&self, a: impl Fn(usize) -> Matrix<'a>, b: impl Fn(usize) -> Matrix<'a>) -> FlexTensor {
        let append = |values: &mut Vec<f32>, product: usize| match self.is_in_columns() {
            true => multiply_onto(values, b(product).transposed(), a(product).transposed()),
            false => multiply_onto(values, a(product), b(product)),
        };
        let (len, all) = (self.rows * self.columns, self.tensor.shape().num_elements());
        let mut values = Vec::with_capacity(all);
        if self.places.len() * len == all {
            (0..self.places.len()).for_each(|product| append(&mut values, product));
        } else {
            values.resize(all, 0.0);
            let mut of_product = Vec::with_capacity(len);
            for (product, place) in self.places.iter().enumerate() {
                of_product.clear();
                append(&mut of_product, product);
                let sums = values[place * len..][..len].iter_mut();
                sums.zip(&of_product).for_each(|(sum, value)| *sum += value);
            }
        }
        self.in_shape(values)
    }

    /// Adds the product of two matrices to the gradient with respect to this factor, which is one matrix, in
    /// its memory order.
    pub(crate) fn add_gradient(&self, gradient: &mut [f32], a: Matrix<'_>, b: Matrix<'_>) {
        match self.is_in_columns() {
            true => add_product(gradient, b.transposed(), a.transposed()),
            false => add_product(gradient, a, b),
        }
    }

    /// Returns a tensor of this factor's shape from values in its memory order.
    pub(crate) fn in_shape(&self, values: Vec<f32>) -> FlexTensor {
        let mut shape = self.tensor.shape();
        let axes = shape.num_dims();
        if !self.is_in_columns() {
            return row_major(values, shape);
        }
        shape.swap(axes - 2, axes - 1);
        row_major(values, shape).transpose(axes - 2, axes - 1)
    }

    fn is_in_columns(&self) -> bool {
        self.steps[1] != 1
    }
}

/// Returns `of(value, at)` for all values, and for each of them all places below `len`.
fn each(values: &[usize], len: usize, of: impl Fn(usize, usize) -> usize) -> Vec<usize> {
    let of = &of;
    values.iter().flat_map(|value| (0..len).map(move |at| of(*value, at))).collect()
}
