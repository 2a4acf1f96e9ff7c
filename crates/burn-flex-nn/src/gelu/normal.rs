//! Unit x · Φ(x), with Φ the distribution function of the normal distribution.
//!
//! Φ uses the rational approximation 7.1.26 of Abramowitz and Stegun, *Handbook of Mathematical Functions*,
//! with an error below 1.5e-7: Φ(-|x|) = ½ t (a₁ + t (a₂ + …)) e^(-x²/2) with t = 1 / (1 + p |x| / √2). The
//! density in the gradient has the same exponential.

use crate::lanes::exp;

/// Returns the function and its derivative at `x`.
#[inline(always)]
pub(super) fn value_and_slope(x: f32) -> [f32; 2] {
    let [distribution, density] = normal(x);
    [x * distribution, distribution + x * density]
}

/// Returns distribution function and density of the standard normal distribution at `x`.
#[inline(always)]
fn normal(x: f32) -> [f32; 2] {
    let size = x.abs();
    let t = 1.0 / (1.0 + 0.327_591_1 * std::f32::consts::FRAC_1_SQRT_2 * size);
    let mut p = 1.061_405_4_f32;
    for coefficient in [-1.453_152_1, 1.421_413_8, -0.284_496_72, 0.254_829_6] {
        p = p * t + coefficient;
    }
    let e = exp(-0.5 * size * size);
    let below = 0.5 * p * t * e;
    let distribution = if x < 0.0 { below } else { 1.0 - below };
    // 1 / √(2 π).
    [distribution, 0.398_942_3 * e]
}
