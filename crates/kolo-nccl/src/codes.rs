//! NCCL's numbers for types and operations, which are part of its ABI.

use std::ffi::c_int;

use kolo_schedule::{DType, Op};

/// Returns the number in `ncclDataType_t`.
pub(super) fn dtype(dtype: DType) -> c_int {
    match dtype {
        DType::U8 => 1,
        DType::I32 => 2,
        DType::I64 => 4,
        DType::F16 => 6,
        DType::F32 => 7,
        DType::F64 => 8,
        DType::Bf16 => 9,
    }
}

/// Returns the number in `ncclRedOp_t`.
pub(super) fn op(op: Op) -> c_int {
    match op {
        Op::Sum => 0,
        Op::Product => 1,
        Op::Max => 2,
        Op::Min => 3,
        Op::Average => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of `nccl.h`, in the order of [`DType::ALL`] and [`Op::ALL`].
    #[test]
    fn codes_are_those_of_the_header() {
        // ncclFloat32, ncclFloat64, ncclInt32, ncclInt64, ncclUint8, ncclFloat16, ncclBfloat16
        assert_eq!(DType::ALL.map(dtype), [7, 8, 2, 4, 1, 6, 9]);
        // ncclSum, ncclAvg, ncclMax, ncclMin, ncclProd
        assert_eq!(Op::ALL.map(op), [0, 4, 2, 3, 1]);
    }
}
