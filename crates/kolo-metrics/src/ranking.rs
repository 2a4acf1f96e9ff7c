//! Tallies that keep a number of each sample, for figures that depend on the order of all of them.

use serde::{Deserialize, Serialize};

use crate::metric::Metric;
use crate::tally::Tally;

/// Area under the ROC curve of a classifier of two classes, for [`Auc::METRICS`]: the share of pairs of a
/// positive and a negative sample in which the positive one has the higher score, where equal scores count
/// one half (Hanley and McNeil 1982). It is exact, by sorting, and keeps 5 bytes of each sample. NaN if one
/// of the classes has no samples.
///
/// ```
/// use kolo_metrics::{Auc, Tally};
///
/// // Of the two pairs, (0.8, 0.3) is in order, and (0.8, 0.9) is not.
/// assert_eq!(Auc::of([0.8, 0.3, 0.9], [true, false, false]).finish(), [0.5]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Auc(Vec<(f32, bool)>);

impl Auc {
    /// The metrics of this tally.
    pub const METRICS: [Metric; 1] = [Metric::higher_is_better("auc")];

    /// Makes the tally of a batch: a score of each sample, and true for the positive ones.
    pub fn of(scores: impl IntoIterator<Item = f32>, are_positive: impl IntoIterator<Item = bool>) -> Self {
        Auc(scores.into_iter().zip(are_positive).collect())
    }
}

impl Tally for Auc {
    fn merge(&mut self, mut later: Self) {
        self.0.append(&mut later.0);
    }

    fn finish(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Twice the number of pairs in order, and the negative samples with lower scores.
        let (mut twice, mut below, mut positives) = (0u64, 0u64, 0u64);
        for equal in sorted.chunk_by(|a, b| a.0 == b.0) {
            let positive = equal.iter().filter(|(_, is_positive)| *is_positive).count() as u64;
            let negative = equal.len() as u64 - positive;
            twice += positive * (2 * below + negative);
            (below, positives) = (below + negative, positives + positive);
        }
        vec![twice as f64 / (2 * below * positives) as f64]
    }
}

/// The value below which a share of the samples' values lies (nearest rank, the definition of
/// [`percentile`](kolo_run_folder::percentile)): of n sorted values the one with the number ⌈share · n⌉. It is
/// exact, and keeps 8 bytes of each sample. NaN without finite values.
///
/// ```
/// use kolo_metrics::{Quantile, Tally};
///
/// let mut median = Quantile::of(0.5, [5.0, 1.0]);
/// median.merge(Quantile::of(0.5, [3.0]));
/// assert_eq!(median.finish(), [3.0]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantile {
    share: f64,
    values: Vec<f64>,
}

impl Quantile {
    /// Makes the tally of a batch: `share` is from 0 to 1, 0.5 for the median.
    pub fn of(share: f64, values: impl IntoIterator<Item = f64>) -> Self {
        Quantile { share, values: values.into_iter().collect() }
    }
}

impl Tally for Quantile {
    fn merge(&mut self, mut later: Self) {
        self.values.append(&mut later.values);
    }

    fn finish(&self) -> Vec<f64> {
        let value = kolo_run_folder::percentile(self.values.iter().copied(), 100.0 * self.share);
        vec![value.unwrap_or(f64::NAN)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Positive samples at 0.4, 0.8 and 0.35, negative ones at 0.1, 0.4 and 0.7. Of the nine pairs
    /// (0.4: above 0.1, equal to 0.4, below 0.7), (0.8: above all), (0.35: above 0.1) 5.5 are in order.
    #[test]
    fn the_area_is_the_share_of_pairs_in_order() {
        let scores = [0.1, 0.4, 0.35, 0.8, 0.4, 0.7];
        let positive = [false, true, true, true, false, false];
        for cut in 0..=6 {
            let of = |range: std::ops::Range<usize>| {
                Auc::of(scores[range.clone()].to_vec(), positive[range].to_vec())
            };
            let mut all = of(0..cut);
            all.merge(of(cut..6));
            assert_eq!(all.finish(), [5.5 / 9.0]);
        }
        assert!(Auc::of([0.5], [true]).finish()[0].is_nan());
    }

    #[test]
    fn a_quantile_is_a_value_of_all_samples() {
        let mut all = Quantile::of(0.5, [5.0, 1.0]);
        all.merge(Quantile::of(0.5, [4.0, f64::NAN, 2.0]));
        // 1, 2, 4, 5: the second of four.
        assert_eq!(all.finish(), [2.0]);
        assert!(Quantile::of(0.9, []).finish()[0].is_nan());
    }
}
