//! Arithmetic on rows of numbers that compilers can vectorize at any width without changing the result. Sums
//! have 16 lanes, which are then added pairwise, and no multiplication is fused with an addition.

use pulp::{Arch, Simd, WithSimd};

/// Number of running values of a sum or a maximum over a row.
pub(crate) const LANES: usize = 16;

/// Runs a loop with the widest vectors of the processor. The loop must be `#[inline(always)]`.
#[inline(always)]
pub(crate) fn vectorized<R>(of: impl FnMut() -> R) -> R {
    Arch::new().dispatch(Vectorized(of))
}

/// A closure itself would be called through a function that the compiler may build for the oldest processors.
struct Vectorized<F>(F);

impl<R, F: FnMut() -> R> WithSimd for Vectorized<F> {
    type Output = R;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _: S) -> R {
        (self.0)()
    }
}

/// Returns e^x within 2 units in the last place, by Cody and Waite's reduction to |r| ≤ ln(2)/2 and a
/// polynomial (with the coefficients of Moshier's [Cephes](https://www.netlib.org/cephes/), `expf.c`). Below
/// -87, where the result would be subnormal, it is 0; for NaN it is NaN. `x` must not exceed 88.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    /// 1.5 · 2²³: added to a small number, it leaves the nearest integer in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let whole = shifted - ROUND;
    // ln(2) in two parts; the first has so few bits that its product is exact.
    let r = x - whole * 0.693_359_4;
    let r = r + whole * 2.121_944_4e-4;
    let mut p = 1.987_569_1e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = p * r + coefficient;
    }
    let p = p * (r * r) + r + 1.0;
    // Multiply by a power of 2: add the integer to the exponent.
    let scaled = f32::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 23));
    // Adding to the bits of a NaN may yield an ordinary number.
    let scaled = if x.is_nan() { x } else { scaled };
    if x < -87.0 { 0.0 } else { scaled }
}

/// Adds up the lanes in a fixed order.
#[inline(always)]
pub(crate) fn sum(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// Returns the sum of `term(a, b)` over two rows of the same length.
#[inline(always)]
pub(crate) fn sum_of(a: &[f32], b: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let b = &b[..a.len()];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            lanes[lane] += term(a[lane], b[lane]);
        }
    }
    for (lane, (a, b)) in lanes.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *lane += term(*a, *b);
    }
    sum(lanes)
}

/// Returns the largest value, or -∞ for an empty row.
#[inline(always)]
pub(crate) fn largest(row: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] = larger(lanes[lane], chunk[lane]);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane = larger(*lane, *value);
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = larger(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// Returns the larger value, or `most` if the other one is NaN.
#[inline(always)]
fn larger(most: f32, value: f32) -> f32 {
    if value > most { value } else { most }
}

/// Replaces each value by `exp((value - largest) · scale)`, and returns their sum.
#[inline(always)]
pub(crate) fn exponentials(row: &mut [f32], largest: f32, scale: f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let (chunks, rest) = row.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            chunk[lane] = exp((chunk[lane] - largest) * scale);
            lanes[lane] += chunk[lane];
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *value = exp((*value - largest) * scale);
        *lane += *value;
    }
    sum(lanes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_right_to_two_units_in_the_last_place() {
        for step in 0..2_000_000 {
            let x = -87.0 + step as f32 * (175.0 / 2e6);
            let expected = f64::from(x).exp();
            let error = (f64::from(exp(x)) - expected).abs() / expected;
            assert!(error < 2.4e-7, "exp({x}): relative error {error}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!([exp(-87.5), exp(-1e30), exp(f32::NEG_INFINITY)], [0.0; 3]);
        // NaN with any payload.
        for payload in (1..1 << 23).step_by(7) {
            assert!(
                [0, 1 << 31].iter().all(|sign| exp(f32::from_bits(sign | 0x7f80_0000 | payload)).is_nan())
            );
        }
    }

    #[test]
    fn sums_and_maxima_see_every_element() {
        for len in 0..50 {
            let row: Vec<f32> = (0..len).map(|i| (i * 7 % 13) as f32).collect();
            assert_eq!(sum_of(&row, &row, |a, b| a + b), 2.0 * row.iter().sum::<f32>());
            let expected = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(largest(&row), expected);
            let mut exponentials_of = row.clone();
            let total = exponentials(&mut exponentials_of, 13.0, 0.5);
            let expected: f64 = row.iter().map(|x| ((f64::from(*x) - 13.0) * 0.5).exp()).sum();
            assert!((f64::from(total) - expected).abs() < 1e-5 * expected.max(1.0), "{len}: {total}");
        }
    }
}
