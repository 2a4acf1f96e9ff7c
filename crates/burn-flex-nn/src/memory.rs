//! Order of tensors in memory.
//!
//! Activations have the shape `[samples, channels, height, width]`. In memory, space comes first and the
//! batch is next to the channels. Everything that one tap of a kernel sees in a row of the image is then one
//! matrix, and nothing has to be unfolded. The layers exchange such tensors as permuted views; tensors in any
//! other order are copied on input.

use burn::backend::DType;
use burn::backend::flex::{FlexTensor, Layout};
use burn::backend::ops::FloatTensorOps;
use burn::backend::{Bytes, Flex, TensorMetadata};
use burn::tensor::Shape;

/// Axes of activations in memory, outermost first.
const ACTIVATIONS: [usize; 4] = [2, 3, 0, 1];

/// Axes of a convolution's weights `[output channels, input channels, height, width]` in memory, outermost
/// first.
pub(crate) const WEIGHTS: [usize; 4] = [2, 3, 1, 0];

/// Returns the tensor in this order, copied if it lies in another.
fn ordered(tensor: &FlexTensor, order: &[usize; 4]) -> FlexTensor {
    let layout = tensor.layout().permute(order);
    let permuted = tensor.clone().with_layout(layout);
    if permuted.is_contiguous() { permuted } else { permuted.to_contiguous() }
}

/// Values in memory order.
#[derive(Clone, Debug)]
pub(crate) struct Values(FlexTensor);

impl Values {
    /// Takes activations `[samples, channels, height, width]`.
    pub(crate) fn of_activations(tensor: &FlexTensor) -> Self {
        Values(ordered(tensor, &ACTIVATIONS))
    }

    /// Takes weights `[output channels, input channels, height, width]`.
    pub(crate) fn of_weights(tensor: &FlexTensor) -> Self {
        Values(ordered(tensor, &WEIGHTS))
    }

    /// Takes a tensor of any shape, in row-major order.
    pub(crate) fn row_major(tensor: &FlexTensor) -> Self {
        Values(tensor.to_contiguous())
    }

    pub(crate) fn shape(&self) -> Shape {
        self.0.shape()
    }
}

impl std::ops::Deref for Values {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        self.0.as_slice().expect("a contiguous tensor of f32")
    }
}

/// Creates activations of this shape from values in memory order.
pub(crate) fn activations(values: Vec<f32>, shape: [usize; 4]) -> FlexTensor {
    view(values, shape, &ACTIVATIONS)
}

pub(crate) fn add_activations(a: FlexTensor, b: FlexTensor) -> FlexTensor {
    let sum = Flex::float_add(ordered(&a, &ACTIVATIONS), ordered(&b, &ACTIVATIONS));
    permuted_back(sum, &ACTIVATIONS)
}

/// Creates weights of this shape from values in memory order.
pub(crate) fn weights(values: Vec<f32>, shape: [usize; 4]) -> FlexTensor {
    view(values, shape, &WEIGHTS)
}

pub(crate) fn vector(values: Vec<f32>) -> FlexTensor {
    let shape = Shape::new([values.len()]);
    row_major(values, shape)
}

/// Creates a tensor of this shape from values in row-major order.
pub(crate) fn row_major(values: Vec<f32>, shape: Shape) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(values), Layout::contiguous(shape), DType::F32)
}

fn view(values: Vec<f32>, shape: [usize; 4], order: &[usize; 4]) -> FlexTensor {
    let layout = Layout::contiguous(Shape::new(order.map(|axis| shape[axis])));
    permuted_back(FlexTensor::new(Bytes::from_elems(values), layout, DType::F32), order)
}

/// Returns the tensor whose axes, permuted by `order`, are those of `ordered`.
fn permuted_back(ordered: FlexTensor, order: &[usize; 4]) -> FlexTensor {
    let layout = ordered.layout().permute(&inverse(order));
    ordered.with_layout(layout)
}

pub(crate) fn inverse(order: &[usize; 4]) -> [usize; 4] {
    let mut inverse = [0; 4];
    order.iter().enumerate().for_each(|(place, axis)| inverse[*axis] = place);
    inverse
}

pub(crate) fn dims(tensor: &FlexTensor) -> [usize; 4] {
    tensor.shape().dims()
}
