//! Percentiles, in the definition that all of Kolo's figures use.

/// Returns the value below which `percent` % of the finite samples lie (nearest rank); `None` without any.
pub fn percentile(samples: impl IntoIterator<Item = f64>, percent: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = samples.into_iter().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Returns the middle sample, the lower one of two; `None` without samples.
pub fn median(samples: impl IntoIterator<Item = f64>) -> Option<f64> {
    percentile(samples, 50.0)
}

/// Returns the mean of the finite samples; `None` without any.
pub fn mean(samples: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) = samples
        .into_iter()
        .filter(|value| value.is_finite())
        .fold((0.0, 0_usize), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let samples = || (1..=100).map(f64::from);
        let found = [0.0, 50.0, 95.0, 99.0, 100.0].map(|p| percentile(samples(), p));
        assert_eq!(found, [1.0, 50.0, 95.0, 99.0, 100.0].map(Some));
        assert_eq!((median([]), mean([f64::NAN])), (None, None));
        assert_eq!(mean([1.0, f64::NAN, 3.0]), Some(2.0));
    }
}
