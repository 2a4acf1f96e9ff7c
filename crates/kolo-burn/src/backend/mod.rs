//! Table of Burn's backends on which Kolo trains, with the operations that Kolo needs of each.
//!
//! A Burn tensor carries its backend at run time, and `burn::backend::backend_extension` generates the
//! dispatch to generic code. Operations below Burn's tensors (the gradient hook, batch normalization over the
//! global batch) are therefore traits defined inside [`on_backends!`], and are implemented once for
//! `Autodiff<B, C>` of any [`HostMemory`].

#[cfg(feature = "cubecl")]
mod cubecl;
mod flex;

use std::fmt::Debug;
use std::ops::Deref;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, DType, DispatchTensor, ExecutionError, TensorMetadata};
use kolo_ddp::MemoryOrder;

/// Defines a trait that every backend of the table implements, with and without autodiff. A backend is one
/// line here and one file beside this one. Burn treats CUDA, ROCm, wgpu and CubeCL's CPU as one backend; the
/// tensor's device selects the runtime.
macro_rules! on_backends {
    ($($definition:tt)*) => {
        #[burn::backend::backend_extension(
            Autodiff,
            Flex,
            Cube: cfg(feature = "cubecl"),
        )]
        $($definition)*
    };
}
pub(crate) use on_backends;

/// Backend whose tensors the host can read.
pub(crate) trait HostMemory: Backend {
    /// Elements of one `f32` tensor in host memory.
    type Floats: Deref<Target = [f32]> + Clone + Debug + Send + 'static;

    /// Reads `tensor` in row-major order, after waiting until the device has computed it.
    fn floats(tensor: FloatTensor<Self>) -> Result<Self::Floats, ReadError>;

    fn floats_in(order: &MemoryOrder, tensor: FloatTensor<Self>) -> Result<Self::Floats, ReadError> {
        if order.is_row_major() {
            return Self::floats(tensor);
        }
        let axes = order.axes(tensor.shape().num_dims());
        Self::floats(Self::float_permute(tensor, &axes))
    }

    /// Returns the tensor in the form in which Burn's tensors carry it, without a graph.
    fn to_dispatch(tensor: FloatTensor<Self>) -> DispatchTensor;

    /// Returns the tensor of [`HostMemory::to_dispatch`].
    fn of_dispatch(tensor: DispatchTensor) -> FloatTensor<Self>;

    /// Returns the order of the elements in memory, on backends where it can vary and is known.
    fn order(_tensor: &FloatTensor<Self>) -> MemoryOrder {
        MemoryOrder::row_major()
    }
}

/// Reason that a tensor of a backend is one of that backend.
const OWN: &str = "each backend gets back the tensors that it has given";

/// Error in reading a tensor's elements as `f32` in host memory.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The tensor has another element type.
    #[error("it holds {0:?}; Kolo trains f32")]
    DType(DType),
    /// The device could not compute or copy the tensor.
    #[error("the device cannot read it: {0}")]
    Device(#[from] ExecutionError),
}
