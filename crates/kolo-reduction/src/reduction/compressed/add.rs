//! Sums of whole vectors.

use kolo_optim::vectorised;

/// Adds `from` to `into`, element by element.
pub(super) fn add(into: &mut [f32], from: &[f32]) {
    vectorised(
        #[inline(always)]
        || into.iter_mut().zip(from).for_each(|(sum, x)| *sum += x),
    );
}
