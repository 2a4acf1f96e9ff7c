//! The numbers that collectives carry.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
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
    pub(crate) fn sums_in_itself(self) -> bool {
        !matches!(self, DType::F16 | DType::Bf16)
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
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
    /// The largest; a NaN anywhere gives NaN.
    Max,
    /// The smallest; a NaN anywhere gives NaN.
    Min,
    /// The product; integers wrap around.
    Product,
}

impl Op {
    /// Every operation, in the order of its code in headers.
    pub const ALL: [Op; 5] = [Op::Sum, Op::Average, Op::Max, Op::Min, Op::Product];
}

impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Op::Sum => "sum",
            Op::Average => "average",
            Op::Max => "max",
            Op::Min => "min",
            Op::Product => "product",
        })
    }
}

/// A number that collectives can carry and combine.
///
/// # Safety
///
/// Every bit pattern must be a valid value and the type must have no padding: buffers are filled with
/// bytes that another process wrote. The alignment must not exceed 8 bytes. `DTYPE` must be the type's own.
pub unsafe trait Element:
    Copy + Default + PartialEq + std::fmt::Debug + Send + Sync + 'static
{
    /// Its name in message headers.
    const DTYPE: DType;
    /// What sums are made in: `f32` for 16-bit floats, the type itself for all others.
    type Sum: Number;
    /// Converts to the type of sums; both slices have one length.
    fn widen(from: &[Self], to: &mut [Self::Sum]);
    /// Rounds from the type of sums; both slices have one length.
    fn narrow(from: &[Self::Sum], to: &mut [Self]);
}

/// A number that sums are made in.
pub trait Number: Element {
    /// The sum of two.
    fn add(self, other: Self) -> Self;
    /// The product of two.
    fn multiply(self, other: Self) -> Self;
    /// The larger of two.
    fn larger(self, other: Self) -> Self;
    /// The smaller of two.
    fn smaller(self, other: Self) -> Self;
    /// Divided by a number of ranks.
    fn divide(self, ranks: usize) -> Self;
}

macro_rules! itself {
    ($t:ty, $dtype:expr) => {
        // SAFETY: all bit patterns of a primitive number are valid, it has no padding, and its alignment is its size.
        unsafe impl Element for $t {
            const DTYPE: DType = $dtype;
            type Sum = $t;
            fn widen(from: &[Self], to: &mut [Self]) {
                to.copy_from_slice(from);
            }
            fn narrow(from: &[Self], to: &mut [Self]) {
                to.copy_from_slice(from);
            }
        }
    };
}

macro_rules! float {
    ($t:ty, $dtype:expr) => {
        itself!($t, $dtype);

        impl Number for $t {
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn multiply(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                if other > self || other.is_nan() { other } else { self }
            }
            #[inline(always)]
            fn smaller(self, other: Self) -> Self {
                if other < self || other.is_nan() { other } else { self }
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
        itself!($t, $dtype);

        impl Number for $t {
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn multiply(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                Ord::max(self, other)
            }
            #[inline(always)]
            fn smaller(self, other: Self) -> Self {
                Ord::min(self, other)
            }
            #[inline(always)]
            fn divide(self, ranks: usize) -> Self {
                (self as i128 / ranks as i128) as $t
            }
        }
    };
}

macro_rules! half_float {
    ($t:ty, $dtype:expr) => {
        // SAFETY: a transparent wrapper of u16, of which all bit patterns are numbers.
        unsafe impl Element for $t {
            const DTYPE: DType = $dtype;
            type Sum = f32;
            fn widen(from: &[Self], to: &mut [f32]) {
                from.convert_to_f32_slice(to);
            }
            fn narrow(from: &[f32], to: &mut [Self]) {
                to.convert_from_f32_slice(from);
            }
        }
    };
}

float!(f32, DType::F32);
float!(f64, DType::F64);
integer!(i32, DType::I32);
integer!(i64, DType::I64);
integer!(u8, DType::U8);
half_float!(f16, DType::F16);
half_float!(bf16, DType::Bf16);

/// Evaluates an expression with `$t` standing for the type that a [`DType`] names.
macro_rules! with_type {
    ($dtype:expr, $t:ident => $body:expr) => {
        match $dtype {
            $crate::DType::F32 => {
                type $t = f32;
                $body
            }
            $crate::DType::F64 => {
                type $t = f64;
                $body
            }
            $crate::DType::I32 => {
                type $t = i32;
                $body
            }
            $crate::DType::I64 => {
                type $t = i64;
                $body
            }
            $crate::DType::U8 => {
                type $t = u8;
                $body
            }
            $crate::DType::F16 => {
                type $t = half::f16;
                $body
            }
            $crate::DType::Bf16 => {
                type $t = half::bf16;
                $body
            }
        }
    };
}
pub(crate) use with_type;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_sizes_are_those_of_the_types() {
        for (code, dtype) in DType::ALL.into_iter().enumerate() {
            assert_eq!(dtype as usize, code);
            let (size, named) = with_type!(dtype, T => (size_of::<T>(), T::DTYPE));
            assert_eq!((dtype.size(), dtype), (size, named));
        }
        for (code, op) in Op::ALL.into_iter().enumerate() {
            assert_eq!(op as usize, code);
        }
    }

    #[test]
    fn a_nan_is_both_the_largest_and_the_smallest() {
        for (a, b) in [(f32::NAN, 1.0), (1.0, f32::NAN)] {
            assert!(a.larger(b).is_nan() && a.smaller(b).is_nan());
        }
    }
}
