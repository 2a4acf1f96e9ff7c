//! Arithmetic of a linear layer, and the work beside its products.

use std::borrow::Cow;
use std::mem::MaybeUninit;
use std::ops::Range;

use burn::backend::Flex;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::flex::FlexTensor;
use burn::tensor::Shape;

use crate::dropout_mask::DropoutMask;
use crate::gelu::Unit;
use crate::lanes::LANES;
use crate::memory::{Values, row_major, vector};
use crate::recomputed::Factor;
use crate::tiles::{Beside, Matrix, multiply};

/// Input and weights of a layer.
#[derive(Clone, Debug)]
pub(super) struct Inputs {
    x: Values,
    weight: Values,
}

/// The same as a backward pass needs them.
#[derive(Clone, Debug)]
pub(super) struct Saved {
    x: Values,
    weight: Factor<Values>,
}

impl Saved {
    /// Keeps the input and the weights, or the node of weights that are computed again.
    pub(super) fn new(inputs: Inputs, weight: Option<NodeId>) -> Self {
        Saved { x: inputs.x, weight: Factor::new(inputs.weight, weight) }
    }

    pub(super) fn inputs(self, checkpointer: &mut Checkpointer) -> Inputs {
        Inputs { x: self.x, weight: self.weight.get(checkpointer, Values::row_major) }
    }
}

impl Inputs {
    pub(super) fn new(x: &FlexTensor, weight: &FlexTensor) -> Self {
        Inputs { x: Values::row_major(x), weight: Values::row_major(weight) }
    }

    fn x(&self) -> Matrix<'_> {
        Matrix::row_major(&self.x, self.weight.shape()[0])
    }

    fn weight(&self) -> Matrix<'_> {
        Matrix::row_major(&self.weight, self.outputs())
    }

    /// Returns the width of the output.
    fn outputs(&self) -> usize {
        self.weight.shape()[1]
    }

    fn output_shape(&self) -> Shape {
        let mut shape = self.x.shape();
        *shape.last_mut().expect("an axis of inputs") = self.outputs();
        shape
    }

    pub(super) fn forward(&self, bias: &FlexTensor, then: impl Beside) -> FlexTensor {
        let output = multiply(self.x(), self.weight(), Some(&Values::row_major(bias)), then);
        row_major(output, self.output_shape())
    }

    /// Returns the output, some of it dropped, plus a residual.
    pub(super) fn forward_adding(
        &self,
        bias: &FlexTensor,
        residual: &FlexTensor,
        mask: Option<&DropoutMask>,
    ) -> FlexTensor {
        let residual = &Values::row_major(residual);
        self.forward(bias, Residual { residual, width: self.outputs(), mask })
    }

    /// Returns the GELU of the output, and its slopes.
    pub(super) fn forward_with_slopes(&self, bias: &FlexTensor, unit: Unit) -> (FlexTensor, Vec<f32>) {
        let len = self.output_shape().num_elements();
        let mut slopes = Vec::with_capacity(len);
        let into = &mut slopes.spare_capacity_mut()[..len];
        let output = self.forward(bias, Gelu { unit, slopes: Some((into, self.outputs())) });
        // SAFETY: every row of every panel was finished.
        unsafe { slopes.set_len(len) };
        (output, slopes)
    }

    /// Registers the gradients of input, weights and bias. Weights that nobody else holds are freed before
    /// their gradient is made.
    pub(super) fn backward(
        self,
        gradient: &[f32],
        [x, weight, bias]: [Option<NodeId>; 3],
        gradients: &mut Gradients,
    ) {
        let (outputs, shape) = (self.outputs(), self.weight.shape());
        let of_output = Matrix::row_major(gradient, outputs);
        if let Some(node) = x {
            let of_x = multiply(of_output, self.weight().transposed(), None, ());
            gradients.register::<Flex>(node, row_major(of_x, self.x.shape()));
        }
        let Inputs { x: input, weight: values } = self;
        drop(values);
        let mut sums = ColumnSums(vec![0.0; outputs]);
        match weight {
            Some(node) => {
                let input = Matrix::row_major(&input, shape[0]);
                let of_weight = multiply(input.transposed(), of_output, None, &mut sums);
                gradients.register::<Flex>(node, row_major(of_weight, shape));
            }
            None => (&mut sums).read(0..outputs, gradient, outputs),
        }
        if let Some(node) = bias {
            gradients.register::<Flex>(node, vector(sums.0.into_iter().map(|sum| sum as f32).collect()));
        }
    }
}

/// Returns a gradient with respect to an output before dropout.
pub(super) fn masked<'a>(gradient: &'a [f32], mask: Option<&DropoutMask>) -> Cow<'a, [f32]> {
    let Some(mask) = mask else { return Cow::Borrowed(gradient) };
    let mut gradient = gradient.to_vec();
    mask.multiply_all(&mut gradient);
    Cow::Owned(gradient)
}

/// Applies GELU, and writes its slopes into rows of a width.
pub(super) struct Gelu<'a> {
    pub(super) unit: Unit,
    pub(super) slopes: Option<(&'a mut [MaybeUninit<f32>], usize)>,
}

impl Beside for Gelu<'_> {
    #[inline(always)]
    fn finish(&mut self, row: usize, columns: Range<usize>, values: &mut [f32]) {
        match &mut self.slopes {
            Some((slopes, width)) => {
                self.unit.apply_with_slopes(values, &mut slopes[row * *width..][columns]);
            }
            None => self.unit.apply(values),
        }
    }
}

/// Drops some values, and adds rows of a width.
struct Residual<'a> {
    residual: &'a [f32],
    width: usize,
    mask: Option<&'a DropoutMask>,
}

impl Beside for Residual<'_> {
    #[inline(always)]
    fn finish(&mut self, row: usize, columns: Range<usize>, values: &mut [f32]) {
        if let Some(mask) = self.mask {
            mask.multiply(row, columns.start, values);
        }
        let residual = &self.residual[row * self.width..][columns];
        let (values, rest) = values.as_chunks_mut::<LANES>();
        let (residuals, residual) = residual.as_chunks::<LANES>();
        for (values, residual) in values.iter_mut().zip(residuals) {
            *values = std::array::from_fn(|lane| values[lane] + residual[lane]);
        }
        rest.iter_mut().zip(residual).for_each(|(value, residual)| *value += residual);
    }
}

/// Sums of columns, in double precision.
struct ColumnSums(Vec<f64>);

impl Beside for &mut ColumnSums {
    #[inline(always)]
    fn read(&mut self, columns: Range<usize>, packed: &[f32], width: usize) {
        let sums = &mut self.0[columns];
        match width {
            16 => add_rows::<16>(sums, packed),
            32 => add_rows::<32>(sums, packed),
            _ => {
                for row in packed.chunks_exact(width) {
                    sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value));
                }
            }
        }
    }
}

/// Adds rows of a known width to sums of its first columns. The sums stay in registers.
#[inline(always)]
fn add_rows<const WIDTH: usize>(sums: &mut [f64], packed: &[f32]) {
    let mut lanes = [0.0; WIDTH];
    lanes[..sums.len()].copy_from_slice(sums);
    for row in packed.as_chunks::<WIDTH>().0 {
        for (lane, value) in lanes.iter_mut().zip(row) {
            *lane += f64::from(*value);
        }
    }
    sums.copy_from_slice(&lanes[..sums.len()]);
}
