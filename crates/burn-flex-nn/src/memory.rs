//! In which order tensors lie in memory.
//!
//! Activations are `[samples, channels, height, width]` to everybody. In memory, space comes first and the
//! batch stands beside the channels: then what one tap of a kernel sees of a row of the image is one matrix,
//! and nothing has to be unfolded. The layers pass such tensors on to one another as permuted views; any
//! other order is copied where it comes in.

use burn::backend::DType;
use burn::backend::flex::{FlexTensor, Layout};
use burn::backend::ops::FloatTensorOps;
use burn::backend::{Bytes, Flex, TensorMetadata};
use burn::tensor::Shape;

/// Axes of activations as they lie in memory, outermost first.
const ACTIVATIONS: [usize; 4] = [2, 3, 0, 1];

/// Axes of a convolution's weights `[output channels, input channels, height, width]` as they lie in memory,
/// outermost first.
pub(crate) const WEIGHTS: [usize; 4] = [2, 3, 1, 0];

/// The tensor in this order, which is copied if it lies in another.
fn ordered(tensor: &FlexTensor, order: &[usize; 4]) -> FlexTensor {
    let layout = tensor.layout().permute(order);
    let permuted = tensor.clone().with_layout(layout);
    if permuted.is_contiguous() { permuted } else { permuted.to_contiguous() }
}

/// Values in memory order.
#[derive(Clone, Debug)]
pub(crate) struct Values(FlexTensor);

impl Values {
    /// Those of activations `[samples, channels, height, width]`.
    pub(crate) fn of_activations(tensor: &FlexTensor) -> Self {
        Values(ordered(tensor, &ACTIVATIONS))
    }

    /// Those of weights `[output channels, input channels, height, width]`.
    pub(crate) fn of_weights(tensor: &FlexTensor) -> Self {
        Values(ordered(tensor, &WEIGHTS))
    }

    /// Those of a tensor of any shape, in row-major order.
    pub(crate) fn row_major(tensor: &FlexTensor) -> Self {
        Values(tensor.to_contiguous())
    }

    /// The tensor's shape.
    pub(crate) fn shape(&self) -> Shape {
        self.0.shape()
    }

    /// The tensor that has the values.
    pub(crate) fn tensor(&self) -> &FlexTensor {
        &self.0
    }

    /// Those of a vector.
    pub(crate) fn of_vector(tensor: &FlexTensor) -> Self {
        Values(tensor.to_contiguous())
    }
}

impl std::ops::Deref for Values {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        self.0.as_slice().expect("a contiguous tensor of f32")
    }
}

/// Activations of this shape from their values in memory order.
pub(crate) fn activations(values: Vec<f32>, shape: [usize; 4]) -> FlexTensor {
    view(values, shape, &ACTIVATIONS)
}

/// The sum of two of the same shape.
pub(crate) fn add_activations(a: FlexTensor, b: FlexTensor) -> FlexTensor {
    let sum = Flex::float_add(ordered(&a, &ACTIVATIONS), ordered(&b, &ACTIVATIONS));
    permuted_back(sum, &ACTIVATIONS)
}

/// Weights of this shape from their values in memory order.
pub(crate) fn weights(values: Vec<f32>, shape: [usize; 4]) -> FlexTensor {
    view(values, shape, &WEIGHTS)
}

/// A vector.
pub(crate) fn vector(values: Vec<f32>) -> FlexTensor {
    let shape = Shape::new([values.len()]);
    row_major(values, shape)
}

/// A tensor of this shape from its values in row-major order.
pub(crate) fn row_major(values: Vec<f32>, shape: Shape) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(values), Layout::contiguous(shape), DType::F32)
}

fn view(values: Vec<f32>, shape: [usize; 4], order: &[usize; 4]) -> FlexTensor {
    let layout = Layout::contiguous(Shape::new(order.map(|axis| shape[axis])));
    permuted_back(FlexTensor::new(Bytes::from_elems(values), layout, DType::F32), order)
}

/// The tensor whose axes in this order are those of `ordered`.
fn permuted_back(ordered: FlexTensor, order: &[usize; 4]) -> FlexTensor {
    let layout = ordered.layout().permute(&inverse(order));
    ordered.with_layout(layout)
}

/// Where in `order` each axis stands.
pub(crate) fn inverse(order: &[usize; 4]) -> [usize; 4] {
    let mut inverse = [0; 4];
    order.iter().enumerate().for_each(|(place, axis)| inverse[*axis] = place);
    inverse
}

/// The four sizes of a tensor.
pub(crate) fn dims(tensor: &FlexTensor) -> [usize; 4] {
    tensor.shape().dims()
}
