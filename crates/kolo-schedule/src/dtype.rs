//! Element types that collectives carry.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr};

/// Type of a buffer's elements. Message headers carry its code.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, Display, EnumString, IntoStaticStr,
)]
#[strum(serialize_all = "lowercase")]
#[repr(u8)]
pub enum DType {
    /// 32-bit float.
    F32,
    /// 64-bit float.
    F64,
    /// 32-bit signed integer.
    I32,
    /// 64-bit signed integer.
    I64,
    /// 8-bit unsigned integer.
    U8,
    /// 16-bit float, 11 bits of precision.
    F16,
    /// 16-bit float with the range of `f32`, 8 bits of precision.
    Bf16,
}

impl DType {
    /// All types, in the order of their codes in headers.
    pub const ALL: [DType; 7] =
        [DType::F32, DType::F64, DType::I32, DType::I64, DType::U8, DType::F16, DType::Bf16];

    /// Returns the type's name in Rust.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the size of one element, in bytes.
    pub fn size(self) -> usize {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::Bf16 => 2,
            DType::U8 => 1,
        }
    }

    /// Returns true if sums are computed in the type itself: several additions round no more than one.
    pub fn sums_in_itself(self) -> bool {
        !matches!(self, DType::F16 | DType::Bf16)
    }
}
