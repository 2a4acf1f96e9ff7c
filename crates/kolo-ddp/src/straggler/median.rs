//! What is usual among several measurements, what is beyond it, and what is no matter.

/// Seconds a step below which a difference is no matter.
pub(super) const LEAST: f64 = 1e-3;

/// The middle one; of an even number the upper one of the two. Nothing: 0.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// By how much the mean is above the median: what those that are much longer than most cost on average.
pub(super) fn stalls(values: impl IntoIterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.into_iter().collect();
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    (mean - median(values)).max(0.0)
}
