//! The numbers that collectives carry.

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
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U8 => "u8",
        })
    }
}

/// How contributions are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Op {
    /// The sum; integers wrap around.
    Sum,
    /// The sum divided by the number of ranks; integers round toward zero.
    Average,
    /// The largest.
    Max,
}

impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Op::Sum => "sum",
            Op::Average => "average",
            Op::Max => "max",
        })
    }
}

/// A number that collectives can carry and combine.
///
/// # Safety
///
/// Every bit pattern must be a valid value and the type must have no padding: buffers are filled with
/// bytes that another process wrote. The alignment must not exceed 8 bytes.
pub unsafe trait Element:
    Copy + Default + PartialEq + std::fmt::Debug + Send + Sync + 'static
{
    /// Its name in message headers.
    const DTYPE: DType;
    /// The sum of two.
    fn add(self, other: Self) -> Self;
    /// The larger of two.
    fn max(self, other: Self) -> Self;
    /// Divided by a number of ranks.
    fn divide(self, ranks: usize) -> Self;
}

macro_rules! float {
    ($t:ty, $dtype:expr) => {
        // SAFETY: all bit patterns of a float are valid, it has no padding, and its alignment is its size.
        unsafe impl Element for $t {
            const DTYPE: DType = $dtype;
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                if other > self || other.is_nan() { other } else { self }
            }
            #[inline(always)]
            fn divide(self, ranks: usize) -> Self {
                self / ranks as $t
            }
        }
    };
}

macro_rules! integer {
    ($t:ty, $dtype:expr) => {
        // SAFETY: all bit patterns of an integer are valid, it has no padding, and its alignment is its size.
        unsafe impl Element for $t {
            const DTYPE: DType = $dtype;
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                Ord::max(self, other)
            }
            #[inline(always)]
            fn divide(self, ranks: usize) -> Self {
                (self as i128 / ranks as i128) as $t
            }
        }
    };
}

float!(f32, DType::F32);
float!(f64, DType::F64);
integer!(i32, DType::I32);
integer!(i64, DType::I64);
integer!(u8, DType::U8);
