//! Median of few numbers.

/// Returns the median; of an even number the lower one of the two in the middle: other work of the machine
/// can only make a step longer. Sorts the slice.
pub(super) fn lower_median(seconds: &mut [f64]) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}
