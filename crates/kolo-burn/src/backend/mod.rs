//! The table of Burn's backends on which Kolo trains, and what it needs of each of them.
//!
//! A Burn tensor carries its backend at run time, and `burn::backend::backend_extension` generates the
//! dispatch from there to generic code. The operations that reach below Burn's tensors (the gradient hook,
//! batch normalisation over the global batch) are therefore traits that are defined inside [`on_backends!`],
//! implemented once for `Autodiff<B, C>` of any [`HostMemory`].

#[cfg(feature = "cubecl")]
mod cubecl;
mod flex;

use std::fmt::Debug;
use std::ops::Deref;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, DType, ExecutionError, TensorMetadata};
use kolo_ddp::MemoryOrder;

/// Defines a trait that every backend of the table implements, also with autodiff around it. A backend is one
/// line here and one file beside this one. CUDA, ROCm, wgpu and CubeCL's CPU are one backend to Burn: the
/// tensor's device says which of them runs.
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

/// A backend whose tensors can be read by the host.
pub(crate) trait HostMemory: Backend {
    /// The elements of one `f32` tensor in host memory.
    type Floats: Deref<Target = [f32]> + Clone + Debug + Send + 'static;

    /// Reads `tensor` in row-major order; waits for the device until it has been computed.
    fn floats(tensor: FloatTensor<Self>) -> Result<Self::Floats, ReadError>;

    /// Reads `tensor` in another order of its elements.
    fn floats_in(order: &MemoryOrder, tensor: FloatTensor<Self>) -> Result<Self::Floats, ReadError> {
        if order.is_row_major() {
            return Self::floats(tensor);
        }
        let axes = order.axes(tensor.shape().num_dims());
        Self::floats(Self::float_permute(tensor, &axes))
    }

    /// In which order the elements lie in memory; where that can be chosen, and is known.
    fn order(_tensor: &FloatTensor<Self>) -> MemoryOrder {
        MemoryOrder::row_major()
    }
}

/// Why a tensor's elements cannot be had as `f32` in host memory.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// It holds another element type.
    #[error("it holds {0:?}; Kolo trains f32")]
    DType(DType),
    /// The device could not compute it or copy it.
    #[error("the device cannot read it: {0}")]
    Device(#[from] ExecutionError),
}
