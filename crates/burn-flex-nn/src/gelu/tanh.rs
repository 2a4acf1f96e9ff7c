//! Unit by tanh (section 2), as GPT-2 has it: ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))).
//!
//! tanh is a ratio of polynomials of degree 13 and 6 (that of Eigen's `generic_fast_tanh_float`), which
//! compilers vectorize at any width without changing the result.

/// √(2/π).
const SCALE: f32 = 0.797_884_6;
/// Share of the cube.
const CUBE: f32 = 0.044_715;

/// Returns the function and its derivative at `x`.
#[inline(always)]
pub(super) fn value_and_slope(x: f32) -> [f32; 2] {
    let square = x * x;
    let t = tanh(SCALE * x * (1.0 + CUBE * square));
    let above = 0.5 * (1.0 + t);
    let inner = SCALE * (1.0 + 3.0 * CUBE * square);
    // Of a large x the square may be infinite. Of an infinite x the slope is not a number, as with Burn.
    let rise = if t.abs() == 1.0 { 0.0 * x } else { 0.5 * x * (1.0 - t * t) * inner };
    [x * above, above + rise]
}

/// Returns tanh(x) within 5e-7; for NaN it is NaN.
#[inline(always)]
fn tanh(x: f32) -> f32 {
    /// Beyond it, tanh is ±1 in `f32`.
    const END: f32 = 7.905_311;
    let square = x * x;
    let mut p = -2.760_768_5e-16_f32;
    for coefficient in
        [2.000_188e-13, -8.604_672e-11, 5.122_297e-8, 1.485_722_4e-5, 6.372_619_3e-4, 4.893_524_6e-3]
    {
        p = p * square + coefficient;
    }
    let mut q = 1.198_258_4e-6_f32;
    for coefficient in [1.185_347e-4, 2.268_434_6e-3, 4.893_525e-3] {
        q = q * square + coefficient;
    }
    let t = x * p / q;
    let t = if x > END { 1.0 } else { t };
    if x < -END { -1.0 } else { t }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Tensor, TensorData};

    use super::*;
    use crate::gelu_tanh;

    fn exact(x: f64) -> f64 {
        0.5 * x * (1.0 + (f64::sqrt(2.0 / std::f64::consts::PI) * (x + 0.044715 * x * x * x)).tanh())
    }

    /// Values and slopes are those of the formula in double precision, the slopes by differences.
    #[test]
    fn values_and_slopes_are_the_formulas() {
        let values: Vec<f32> = (-1200..=1200).map(|x| x as f32 / 100.0).collect();
        let x = Tensor::<1>::from_data(
            TensorData::new(values.clone(), [values.len()]),
            &Device::flex().autodiff(),
        );
        let x = x.require_grad();
        let output = gelu_tanh(x.clone());
        let slopes: Vec<f32> = x.grad(&output.clone().sum().backward()).unwrap().into_data().iter().collect();
        let output: Vec<f32> = output.into_data().iter().collect();
        for ((x, value), slope) in values.iter().zip(output).zip(slopes) {
            let x = f64::from(*x);
            assert!((f64::from(value) - exact(x)).abs() < 2e-6, "at {x}: {value} {}", exact(x));
            let difference = (exact(x + 1e-5) - exact(x - 1e-5)) / 2e-5;
            assert!((f64::from(slope) - difference).abs() < 1e-5, "at {x}: {slope} {difference}");
        }
        assert!(value_and_slope(f32::NAN)[0].is_nan() && tanh(f32::NAN).is_nan());
        assert_eq!([value_and_slope(1e30), value_and_slope(-1e30)], [[1e30, 1.0], [0.0, 0.0]]);
    }
}
