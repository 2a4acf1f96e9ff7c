//! Arrays of any library by DLPack (<https://dmlc.github.io/dlpack>), version 0 of its capsules.

use std::ffi::c_void;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// `DLTensor`, with which a `DLManagedTensor` begins.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    dimensions: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    /// In elements; null if the array is contiguous.
    strides: *const i64,
    byte_offset: u64,
}

/// Host memory.
const CPU: i32 = 1;

/// Returns address, number of elements, name of the type and contiguity of the array in a capsule, which
/// stays the owner.
#[pyfunction]
pub fn from_dlpack(capsule: &Bound<'_, PyCapsule>) -> PyResult<(usize, usize, String, bool)> {
    let tensor = capsule.pointer_checked(Some(c"dltensor"))?.cast::<Tensor>();
    // SAFETY: a capsule of this name holds a DLManagedTensor, which the capsule keeps alive.
    let tensor = unsafe { tensor.as_ref() };
    if tensor.device_type != CPU {
        let problem = format!(
            "an array on device type {} of DLPack; Kolo's groups take host memory",
            tensor.device_type
        );
        return Err(PyValueError::new_err(problem));
    }
    let dimensions = usize::try_from(tensor.dimensions).unwrap_or(0);
    let list = |start: *const i64| match dimensions {
        0 => &[][..],
        // SAFETY: the array has so many dimensions, each with a length and a stride.
        _ => unsafe { std::slice::from_raw_parts(start, dimensions) },
    };
    let shape = list(tensor.shape);
    let len: i64 = shape.iter().product();
    let contiguous = tensor.strides.is_null() || len == 0 || {
        let (mut expected, mut contiguous) = (1, true);
        for (length, stride) in shape.iter().zip(list(tensor.strides)).rev() {
            contiguous &= *length == 1 || *stride == expected;
            expected *= length;
        }
        contiguous
    };
    let name = match (tensor.code, tensor.bits, tensor.lanes) {
        (0, bits, 1) => format!("int{bits}"),
        (1, bits, 1) => format!("uint{bits}"),
        (2, bits, 1) => format!("float{bits}"),
        (4, 16, 1) => "bfloat16".into(),
        (5, bits, 1) => format!("complex{bits}"),
        (6, 8, 1) => "bool".into(),
        (code, bits, lanes) => {
            let problem =
                format!("a type of DLPack that Kolo does not know: code {code}, {bits} bits, {lanes} lanes");
            return Err(PyTypeError::new_err(problem));
        }
    };
    let address = (tensor.data as usize).wrapping_add(tensor.byte_offset as usize);
    Ok((address, usize::try_from(len).unwrap_or(0), name, contiguous))
}
