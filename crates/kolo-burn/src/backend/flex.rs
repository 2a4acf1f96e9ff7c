//! Burn's `flex`: tensors are in host memory and are read in place.

use std::ops::Deref;

use burn::backend::flex::FlexTensor;
use burn::backend::{DType, DispatchTensor, Flex};
use burn::tensor::Tensor;
use kolo_ddp::MemoryOrder;

use super::{HostMemory, OWN, ReadError};

/// Contiguous `f32` tensor, with shared memory.
#[derive(Clone, Debug)]
pub(crate) struct Contiguous(FlexTensor);

impl Deref for Contiguous {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        self.0.as_slice().expect("a contiguous f32 tensor is a slice")
    }
}

impl HostMemory for Flex {
    type Floats = Contiguous;

    /// Copies only if the tensor is not contiguous, such as a transposed one.
    fn floats(tensor: FlexTensor) -> Result<Contiguous, ReadError> {
        match tensor.dtype() {
            DType::F32 if tensor.as_slice::<f32>().is_some() => Ok(Contiguous(tensor)),
            DType::F32 => Ok(Contiguous(tensor.to_contiguous())),
            other => Err(ReadError::DType(other)),
        }
    }

    fn to_dispatch(tensor: FlexTensor) -> DispatchTensor {
        Tensor::<1>::from_primitive::<Flex>(tensor).into_dispatch()
    }

    fn of_dispatch(tensor: DispatchTensor) -> FlexTensor {
        Tensor::<1>::from_dispatch(tensor).try_into_primitive::<Flex>().expect(OWN)
    }

    fn order(tensor: &FlexTensor) -> MemoryOrder {
        let layout = tensor.layout();
        let strides: Vec<usize> = layout.strides().iter().map(|stride| stride.unsigned_abs()).collect();
        let flipped = layout.strides().iter().any(|stride| *stride < 0);
        if flipped { MemoryOrder::row_major() } else { MemoryOrder::of_strides(layout.shape(), &strides) }
    }
}
