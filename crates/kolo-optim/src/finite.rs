//! Whether values are numbers, and how large they are: looked at by their bits, with vector instructions.

use crate::vectorised::vectorised;

/// Whether all of these are numbers, and finite.
pub fn are_finite(values: &[f32]) -> bool {
    are_below(values, f32::INFINITY)
}

/// Whether the magnitude of each of these is below a limit, which is positive. That of no number (NaN) is
/// below none.
pub fn are_below(values: &[f32], limit: f32) -> bool {
    // Without their sign the bits of numbers are in the order of their magnitudes, and those of NaN are
    // above those of infinity. A maximum of integers has no order to keep, so vector instructions can be used.
    let largest = vectorised(
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
        // With low and high payloads, quiet and signalling.
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
