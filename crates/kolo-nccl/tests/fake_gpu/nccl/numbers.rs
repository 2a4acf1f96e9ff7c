//! Arithmetic on the numbers of a collective, by NCCL's codes for types and operations.

use std::ffi::c_int;

use half::{bf16, f16};

pub(super) fn combined(all: &[Vec<u8>], dtype: c_int, op: c_int) -> Vec<u8> {
    macro_rules! of {
        ($t:ty, $from:expr, $to:expr) => {{
            let size = size_of::<$t>();
            let value = |bytes: &[u8], index: usize| -> f64 {
                $from(<$t>::from_ne_bytes(bytes[index * size..][..size].try_into().unwrap()))
            };
            let mut result = Vec::new();
            for index in 0..all[0].len() / size {
                let values = all.iter().map(|bytes| value(bytes, index));
                let combined = values.reduce(|a, b| match op {
                    0 | 4 => a + b,
                    1 => a * b,
                    2 => a.max(b),
                    _ => a.min(b),
                });
                let divided = combined.unwrap() / if op == 4 { all.len() as f64 } else { 1.0 };
                result.extend_from_slice(&<$t>::to_ne_bytes($to(divided)));
            }
            result
        }};
    }
    match dtype {
        1 => of!(u8, |x| x as f64, |x| x as u8),
        2 => of!(i32, |x| x as f64, |x| x as i32),
        4 => of!(i64, |x| x as f64, |x| x as i64),
        6 => of!(f16, f64::from, f16::from_f64),
        7 => of!(f32, |x| x as f64, |x| x as f32),
        8 => of!(f64, |x| x, |x| x),
        _ => of!(bf16, f64::from, bf16::from_f64),
    }
}

pub(super) fn size(dtype: c_int) -> usize {
    [1, 1, 4, 4, 8, 8, 2, 4, 8, 2][dtype as usize]
}
