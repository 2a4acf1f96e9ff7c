//! The numbers that collectives carry.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use kolo_schedule::DType;

/// A number that collectives can carry and combine.
///
/// # Safety
///
/// Every bit pattern must be a valid value and the type must have no padding: buffers are filled with
/// bytes that another process wrote. The alignment must not exceed 8 bytes. `DTYPE` must be the type's own.
pub unsafe trait Element:
    Copy + Default + PartialEq + std::fmt::Debug + Send + Sync + 'static
{
    /// The type's name in message headers.
    const DTYPE: DType;
    /// The type that sums are computed in: `f32` for 16-bit floats, the type itself for all others.
    type Sum: Number;
    /// Converts to the type of sums; both slices have the same length.
    fn widen(from: &[Self], to: &mut [Self::Sum]);
    /// Rounds from the type of sums; both slices have the same length.
    fn narrow(from: &[Self::Sum], to: &mut [Self]);
    /// Converts a whole number, which is exact if it is small.
    fn of(number: usize) -> Self {
        let mut converted = [Self::default()];
        Self::narrow(&[Self::Sum::from_usize(number)], &mut converted);
        converted[0]
    }
}

/// A number type that sums are computed in.
pub trait Number: Element {
    /// Returns the sum of two numbers.
    fn add(self, other: Self) -> Self;
    /// Returns the product of two numbers.
    fn multiply(self, other: Self) -> Self;
    /// Returns the larger of two numbers; NaN if either is NaN.
    fn larger(self, other: Self) -> Self;
    /// Returns the smaller of two numbers; NaN if either is NaN.
    fn smaller(self, other: Self) -> Self;
    /// Divides by a number of ranks.
    fn divide(self, ranks: usize) -> Self;
    /// Converts a whole number.
    fn from_usize(number: usize) -> Self;
}

macro_rules! itself {
    ($t:ty, $dtype:expr) => {
        // SAFETY: all bits of a primitive number are valid; it has no padding and is aligned to its size.
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
            fn from_usize(number: usize) -> Self {
                number as $t
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
            fn from_usize(number: usize) -> Self {
                number as $t
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

/// Evaluates an expression in which `$t` is the type that a [`DType`] names.
#[doc(hidden)]
#[macro_export]
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
                type $t = $crate::f16;
                $body
            }
            $crate::DType::Bf16 => {
                type $t = $crate::bf16;
                $body
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use kolo_schedule::Op;

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
