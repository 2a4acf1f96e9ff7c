//! Metrics that merge: what one batch says of them, added in the order of the batches.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::metric::{Mean, Metric};

/// What some samples say of one or several metrics. All workers add the tallies of all batches, in the order
/// of the batches, so that the values are the same for any number of workers.
pub trait Tally: Serialize + DeserializeOwned + 'static {
    /// Adds the tally of the samples that follow.
    fn merge(&mut self, later: Self);

    /// Returns the values of the metrics, in their order.
    fn finish(&self) -> Vec<f64>;
}

impl Tally for Mean {
    fn merge(&mut self, later: Self) {
        (self.sum, self.count) = (self.sum + later.sum, self.count + later.count);
    }

    fn finish(&self) -> Vec<f64> {
        vec![self.sum / self.count]
    }
}

/// Tallies one after another. Both must have as many.
impl<T: Tally> Tally for Vec<T> {
    fn merge(&mut self, later: Self) {
        self.iter_mut().zip(later).for_each(|(tally, later)| tally.merge(later));
    }

    fn finish(&self) -> Vec<f64> {
        self.iter().flat_map(T::finish).collect()
    }
}

impl<A: Tally, B: Tally> Tally for (A, B) {
    fn merge(&mut self, later: Self) {
        self.0.merge(later.0);
        self.1.merge(later.1);
    }

    fn finish(&self) -> Vec<f64> {
        [self.0.finish(), self.1.finish()].concat()
    }
}

/// The exponential of a mean loss over tokens, for [`Metric::PERPLEXITY`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Perplexity(pub Mean);

impl Tally for Perplexity {
    fn merge(&mut self, later: Self) {
        self.0.merge(later.0);
    }

    fn finish(&self) -> Vec<f64> {
        self.0.finish().into_iter().map(libm::exp).collect()
    }
}

/// Counts of samples by their class and the class that the model guessed, for [`Confusion::METRICS`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Confusion(BTreeMap<(u32, u32), u64>);

impl Confusion {
    /// Accuracy, and the means over all classes of precision, recall and F1 score. A class that is never
    /// guessed has the precision 0, and one without samples the recall 0, as in scikit-learn.
    pub const METRICS: [Metric; 4] = [
        Metric::ACCURACY,
        Metric { is_share: true, ..Metric::higher_is_better("precision") },
        Metric { is_share: true, ..Metric::higher_is_better("recall") },
        Metric { is_share: true, ..Metric::higher_is_better("f1") },
    ];

    /// Counts a batch, which has as many guesses as labels.
    pub fn of(labels: impl IntoIterator<Item = u32>, guesses: impl IntoIterator<Item = u32>) -> Self {
        let mut counts = BTreeMap::new();
        labels.into_iter().zip(guesses).for_each(|pair| *counts.entry(pair).or_insert(0) += 1);
        Confusion(counts)
    }

    /// Number of samples of this class that the model took for `guess`.
    pub fn count(&self, label: u32, guess: u32) -> u64 {
        self.0.get(&(label, guess)).copied().unwrap_or(0)
    }

    /// Precision, recall and F1 score of each class that has samples or was guessed.
    pub fn by_class(&self) -> BTreeMap<u32, [f64; 3]> {
        // Right guesses, samples, and guesses.
        let mut counts: BTreeMap<u32, [u64; 3]> = BTreeMap::new();
        for ((label, guess), count) in &self.0 {
            counts.entry(*label).or_default()[1] += count;
            counts.entry(*guess).or_default()[2] += count;
            if label == guess {
                counts.entry(*label).or_default()[0] += count;
            }
        }
        let share = |part: u64, all: u64| if all == 0 { 0.0 } else { part as f64 / all as f64 };
        let scores = |[right, samples, guesses]: [u64; 3]| {
            [share(right, guesses), share(right, samples), share(2 * right, samples + guesses)]
        };
        counts.into_iter().map(|(class, counts)| (class, scores(counts))).collect()
    }
}

impl Tally for Confusion {
    fn merge(&mut self, later: Self) {
        later.0.into_iter().for_each(|(pair, count)| *self.0.entry(pair).or_insert(0) += count);
    }

    fn finish(&self) -> Vec<f64> {
        let right: u64 =
            self.0.iter().filter(|((label, guess), _)| label == guess).map(|(_, count)| count).sum();
        let classes = self.by_class();
        let mean =
            |index: usize| classes.values().map(|scores| scores[index]).sum::<f64>() / classes.len() as f64;
        vec![right as f64 / self.0.values().sum::<u64>() as f64, mean(0), mean(1), mean(2)]
    }
}

/// Returns the share of samples whose label is among the `most` classes with the highest scores. Of equal
/// scores the lower class counts first. `scores` has a row for each label.
pub fn top_k(scores: &[f32], labels: &[u32], most: usize) -> Mean {
    let classes = scores.len() / labels.len().max(1);
    let is_in = |(row, label): &(&[f32], &u32)| {
        let (label, own) = (**label as usize, row[**label as usize]);
        let before = |(class, score): (usize, &f32)| *score > own || *score == own && class < label;
        row.iter().enumerate().filter(|other| before(*other)).count() < most
    };
    Mean::share(scores.chunks(classes.max(1)).zip(labels).filter(is_in).count(), labels.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of scikit-learn's `precision_recall_fscore_support(labels, guesses, zero_division=0)`.
    #[test]
    fn scores_of_classes_are_scikit_learns() {
        let labels = [0, 0, 0, 1, 1, 2, 2, 2, 2, 4];
        let guesses = [0, 0, 1, 1, 2, 2, 2, 0, 3, 2];
        let whole = Confusion::of(labels, guesses);
        for cut in 0..labels.len() {
            let mut merged = Confusion::of(labels[..cut].to_vec(), guesses[..cut].to_vec());
            merged.merge(Confusion::of(labels[cut..].to_vec(), guesses[cut..].to_vec()));
            assert_eq!(merged, whole);
        }
        let expected = [
            (0, [2.0 / 3.0, 2.0 / 3.0, 2.0 / 3.0]),
            (1, [0.5, 0.5, 0.5]),
            (2, [0.5, 0.5, 0.5]),
            (3, [0.0, 0.0, 0.0]),
            (4, [0.0, 0.0, 0.0]),
        ];
        assert_eq!(whole.by_class().into_iter().collect::<Vec<_>>(), expected);
        assert_eq!((whole.count(2, 3), whole.count(3, 2)), (1, 0));
        let [accuracy, precision, recall, f1] = whole.finish()[..] else { panic!() };
        assert_eq!(accuracy, 0.5);
        for mean in [precision, recall, f1] {
            assert!((mean - 1.0 / 3.0).abs() < 1e-12, "{mean}");
        }
    }

    #[test]
    fn a_label_among_the_first_counts() {
        let scores = [0.1, 0.5, 0.4, 0.3, 0.3, 0.3];
        let share = |most| top_k(&scores, &[2, 1], most).finish()[0];
        assert_eq!([share(1), share(2), share(3)], [0.0, 1.0, 1.0]);
        assert_eq!(top_k(&[], &[], 5), Mean { sum: 0.0, count: 0.0 });
    }

    #[test]
    fn a_perplexity_is_the_exponential_of_all_samples_mean() {
        let mut one = (Perplexity(Mean { sum: 3.0, count: 2.0 }), Mean { sum: 1.0, count: 4.0 });
        one.merge((Perplexity(Mean { sum: 5.0, count: 6.0 }), Mean { sum: 1.0, count: 4.0 }));
        assert_eq!(one.finish(), [libm::exp(1.0), 0.25]);
    }
}
