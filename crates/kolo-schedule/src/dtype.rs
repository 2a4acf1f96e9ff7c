//! Collectives carry elements of these types.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr};

/// The type of a buffer's elements, as it travels in a message's header.
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
    /// Every type, in the order of its code in headers.
    pub const ALL: [DType; 7] =
        [DType::F32, DType::F64, DType::I32, DType::I64, DType::U8, DType::F16, DType::Bf16];

    /// Its name, as in Rust.
    pub fn name(self) -> &'static str {
        self.into()
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

    /// Whether sums are made in the type itself, so that adding in several messages rounds no more often than
    /// adding at once.
    pub fn sums_in_itself(self) -> bool {
        !matches!(self, DType::F16 | DType::Bf16)
    }
}
