//! Percentiles of times, in memory that does not grow with the run.

use kolo_run_folder::percentile;

const MOST: usize = 8192;

/// A value for each step. The first 8,192 are all kept; then every second one of all, every fourth one after
/// twice as many, and so on. So the percentiles come from 4,096 to 8,192 values spread evenly over the run,
/// the same ones in every run.
#[derive(Clone, Debug)]
pub(crate) struct Samples {
    kept: Vec<f64>,
    /// Distance of the kept values.
    every: u64,
    seen: u64,
}

impl Default for Samples {
    fn default() -> Self {
        Samples { kept: Vec::new(), every: 1, seen: 0 }
    }
}

impl Samples {
    pub(crate) fn push(&mut self, value: f64) {
        if self.seen.is_multiple_of(self.every) {
            if self.kept.len() == MOST {
                self.kept = self.kept.iter().copied().step_by(2).collect();
                self.every *= 2;
            }
            self.kept.push(value);
        }
        self.seen += 1;
    }

    /// Returns the value below which `percent` % of the kept ones lie; 0 without values.
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        percentile(self.kept.iter().copied(), percent).unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_exact_and_many_are_near_in_bounded_memory() {
        let mut samples = Samples::default();
        assert_eq!(samples.percentile(50.0), 0.0);
        // A period that no power of two divides.
        let value = |n: u64| (n * 7919 % 10_007) as f64;
        for n in 0..1_000_000u64 {
            samples.push(value(n));
            if n + 1 == MOST as u64 {
                let exact = percentile((0..MOST as u64).map(value), 95.0).unwrap();
                assert_eq!(samples.percentile(95.0), exact);
            }
            assert!(samples.kept.len() <= MOST);
        }
        assert!(samples.kept.len() >= MOST / 2);
        for percent in [1.0, 50.0, 95.0, 99.0] {
            let off = samples.percentile(percent) - percent / 100.0 * 10_007.0;
            assert!(off.abs() < 0.02 * 10_007.0, "{percent} %: off by {off}");
        }
    }
}
