//! The types of the elements that collectives carry.

use serde::{Deserialize, Serialize};

/// The type of a buffer's elements, as it travels in a message's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
    /// Every type, in the order of its code in headers.
    pub const ALL: [DType; 7] =
        [DType::F32, DType::F64, DType::I32, DType::I64, DType::U8, DType::F16, DType::Bf16];

    /// Its name, as in Rust.
    pub fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U8 => "u8",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
        }
    }

    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::Bf16 => 2,
            DType::U8 => 1,
        }
    }

    /// Whether sums are made in the type itself, so that adding in several messages rounds no more often than adding
    /// at once.
    pub fn sums_in_itself(self) -> bool {
        !matches!(self, DType::F16 | DType::Bf16)
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
