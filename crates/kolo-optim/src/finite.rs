//! Vectorized tests for finite values and for magnitudes below a limit.

use crate::vectorized::vectorized;

/// Returns true if all values are finite.
pub fn are_finite(values: &[f32]) -> bool {
    are_below(values, f32::INFINITY)
}

/// Returns true if the magnitude of every value is below `limit`, which must be positive. NaN is below no
/// limit.
pub fn are_below(values: &[f32], limit: f32) -> bool {
    // Without the sign bit, the bits of floats are ordered by magnitude, with NaN above infinity. A maximum
    // of integers does not depend on the order, so the compiler can vectorize it.
    let largest = vectorized(
        #[inline(always)]
        || values.iter().fold(0, |largest, value| largest.max(value.to_bits() & 0x7fff_ffff)),
    );
    largest < limit.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finite_is_what_the_standard_library_calls_finite() {
        let finite = [0.0, -0.0, 1.0, f32::MAX, f32::MIN, f32::MIN_POSITIVE / 4.0];
        assert!(are_finite(&finite) && are_finite(&[]));
        // NaN with low and high payloads, quiet and signaling.
        let nans = [0x7f80_0001, 0xff80_0001, 0x7fc0_0000, 0x7fff_ffff].map(f32::from_bits);
        for wrong in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY].into_iter().chain(nans) {
            for place in 0..40 {
                let mut values = vec![f32::MAX; 40];
                values[place] = wrong;
                assert!(!are_finite(&values), "{wrong} at {place}");
            }
        }
    }

    #[test]
    fn the_limit_itself_is_not_below() {
        assert!(are_below(&[1.9, -1.9], 2.0));
        assert!(!are_below(&[0.0, 2.0], 2.0) && !are_below(&[-2.0, 0.0], 2.0));
        assert!(!are_below(&[f32::NAN], f32::INFINITY));
    }
}
