//! Burn's CubeCL backend (CUDA, ROCm, wgpu, CPU): tensors are in device memory and are copied to the host.

use std::ops::Deref;
use std::sync::Arc;

use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Cube, DType, DispatchTensor, TensorData, TensorMetadata, read_sync};
use burn::tensor::Tensor;

use super::{HostMemory, OWN, ReadError};

/// Copy of a tensor's elements, which are `f32`.
#[derive(Clone, Debug)]
pub(crate) struct Copied(Arc<TensorData>);

impl Deref for Copied {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        self.0.as_slice().expect("the element type was checked when it was read")
    }
}

impl HostMemory for Cube {
    type Floats = Copied;

    /// Copies once from the device, after waiting for all work launched before.
    fn floats(tensor: FloatTensor<Cube>) -> Result<Copied, ReadError> {
        match tensor.dtype() {
            DType::F32 => Ok(Copied(Arc::new(read_sync(Cube::float_into_data(tensor))?))),
            other => Err(ReadError::DType(other)),
        }
    }

    fn to_dispatch(tensor: FloatTensor<Cube>) -> DispatchTensor {
        Tensor::<1>::from_primitive::<Cube>(tensor).into_dispatch()
    }

    fn of_dispatch(tensor: DispatchTensor) -> FloatTensor<Cube> {
        Tensor::<1>::from_dispatch(tensor).try_into_primitive::<Cube>().expect(OWN)
    }
}
