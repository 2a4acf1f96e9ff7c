//! Sums of whole vectors.

use kolo_optim::vectorized;

/// Adds `from` to `into`, element by element.
pub(super) fn add(into: &mut [f32], from: &[f32]) {
    vectorized(
        #[inline(always)]
        || into.iter_mut().zip(from).for_each(|(sum, x)| *sum += x),
    );
}
