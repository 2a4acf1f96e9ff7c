//! A curve of any length in bounded memory.

/// Maximum number of points: more than a terminal has columns.
const MOST: usize = 512;

/// Values of consecutive steps. When there are too many, pairs of neighbors are replaced by their means.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// Means, each with the first of its steps.
    points: Vec<(f64, f64)>,
    stride: usize,
    /// Sum and number of values of the incomplete point, and the first of its steps.
    open: (f64, usize, f64),
}

impl Default for Series {
    fn default() -> Self {
        Series { points: Vec::new(), stride: 1, open: (0.0, 0, 0.0) }
    }
}

impl Series {
    /// Adds a value; NaN and infinite values are ignored.
    pub(crate) fn push(&mut self, step: u64, value: f64) {
        if !value.is_finite() {
            return;
        }
        let (sum, count, first) = self.open;
        let first = if count == 0 { step as f64 } else { first };
        self.open = (sum + value, count + 1, first);
        if count + 1 < self.stride {
            return;
        }
        let (sum, count, first) = std::mem::take(&mut self.open);
        self.points.push((first, sum / count as f64));
        if self.points.len() == MOST {
            let pair = |pair: &[(f64, f64)]| (pair[0].0, (pair[0].1 + pair[1].1) / 2.0);
            self.points = self.points.chunks_exact(2).map(pair).collect();
            self.stride *= 2;
        }
    }

    /// Drops the values from `step` on, and with them the earlier values of the point that has the first.
    pub(crate) fn rewind(&mut self, step: u64) {
        let is_before = |first: f64, count: usize| first + count as f64 <= step as f64;
        self.points.retain(|(first, _)| is_before(*first, self.stride));
        let (_, count, first) = self.open;
        if !is_before(first, count) {
            self.open = (0.0, 0, 0.0);
        }
    }

    /// Returns the means, each with the first of its steps.
    pub(crate) fn points(&self) -> &[(f64, f64)] {
        &self.points
    }

    pub(crate) fn range(&self) -> Option<(f64, f64)> {
        let values = || self.points.iter().map(|(_, value)| *value);
        Some((values().reduce(f64::min)?, values().reduce(f64::max)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_values_has_room() {
        let mut series = Series::default();
        assert_eq!(series.range(), None);
        series.push(0, f64::NAN);
        for step in 0..100_000 {
            series.push(step, step as f64);
        }
        assert!(series.points().len() < MOST && series.points().len() >= MOST / 2);
        let (first, last) = (series.points()[0], series.points()[series.points().len() - 1]);
        assert_eq!((first.0, first.1), (0.0, (series.stride - 1) as f64 / 2.0));
        assert!(last.0 > 99_000.0 && last.1 - last.0 == first.1, "means stay in their places: {last:?}");
        assert_eq!(series.range(), Some((first.1, last.1)));
    }

    #[test]
    fn a_rewound_series_has_the_values_before_the_step_only() {
        let mut series = Series { stride: 4, ..Series::default() };
        (0..10).for_each(|step| series.push(step, step as f64));
        series.rewind(10);
        (10..12).for_each(|step| series.push(step, step as f64));
        assert_eq!(series.points(), [(0.0, 1.5), (4.0, 5.5), (8.0, 9.5)], "nothing was dropped");
        series.rewind(6);
        assert_eq!(series.points(), [(0.0, 1.5)], "the second point has steps 6 and 7");
        (6..10).for_each(|step| series.push(step, 1.0));
        assert_eq!(series.points(), [(0.0, 1.5), (6.0, 1.0)]);
    }
}
