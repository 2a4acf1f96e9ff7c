//! Statistics of several measurements: the median, and the mean's excess over it.

/// Returns the median; of an even number the upper one of the two in the middle; 0 without values.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// Returns the difference between mean and median: the average cost of values that are much larger than
/// most.
pub(super) fn stalls(values: impl IntoIterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.into_iter().collect();
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    (mean - median(values)).max(0.0)
}
