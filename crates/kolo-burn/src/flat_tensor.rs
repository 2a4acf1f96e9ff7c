//! Tensors of values in flat memory: copies of them, or in place.
//!
//! On `flex` a trained parameter shows the memory that the optimizer writes, and nothing is copied. Burn
//! never writes there: the first operation that would change such a tensor in place gets a copy of it, from
//! Burn's controller of shared bytes. Kolo writes there only when no tensor shows that memory any more
//! ([`kolo_ddp::Loan`]).

use burn::tensor::{DType, Device, Tensor, TensorData};
use burn_std::{AllocationProperty, Bytes};
use kolo_ddp::binding::SpanValues;
use kolo_ddp::{Loan, MemoryOrder, ParamSpec};

use crate::device;

/// Waits for the newest values of a parameter, and returns them as a tensor: in place if they are lent and
/// the device computes in host memory.
pub(crate) fn newest<const D: usize>(values: SpanValues, spec: &ParamSpec, device: &Device) -> Tensor<D> {
    let is_on_host = device::is_on_host(device).unwrap_or(false);
    match is_on_host.then(|| values.lend()).flatten() {
        Some(loan) => of_memory_order(|shape| data(loan, shape), spec, device),
        None => copied(values.wait(), spec, device),
    }
}

/// Creates a tensor of this shape from its elements in memory order.
pub(crate) fn copied<const D: usize>(values: Vec<f32>, spec: &ParamSpec, device: &Device) -> Tensor<D> {
    of_memory_order(|shape| TensorData::new(values, shape), spec, device)
}

/// Returns the axes of a tensor in memory, outermost first.
pub(crate) fn axes<const D: usize>(order: &MemoryOrder) -> [usize; D] {
    order.axes(D).try_into().expect("as many axes as the tensor has")
}

/// Returns lent values as the data of a tensor.
fn data(loan: Loan, shape: Vec<usize>) -> TensorData {
    let bytes = Bytes::from_shared(bytes::Bytes::from_owner(loan), AllocationProperty::Other);
    TensorData::from_bytes(bytes, shape, DType::F32)
}

/// Creates a tensor of this shape; `data` returns its elements in memory order, given their shape there.
fn of_memory_order<const D: usize>(
    data: impl FnOnce(Vec<usize>) -> TensorData,
    spec: &ParamSpec,
    device: &Device,
) -> Tensor<D> {
    if spec.order.is_row_major() {
        return Tensor::from_data(data(spec.shape.clone()), device);
    }
    let in_memory = axes::<D>(&spec.order).map(|axis| spec.shape[axis]);
    let back: [usize; D] = spec.order.inverse_axes(D).try_into().expect("as many axes as the tensor has");
    Tensor::from_data(data(in_memory.to_vec()), device).permute(back)
}
