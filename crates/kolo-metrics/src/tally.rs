//! Metrics that merge: what one batch says of them, added in the order of the batches.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::classification::{Classification, Confusion, best_class};
use crate::metric::Mean;

/// Contribution of some samples to one or several metrics. All workers add the tallies of all batches, in the
/// order of the batches, so that the values are the same for any number of workers.
///
/// A metric of your own, the largest error of all samples:
///
/// ```
/// use kolo_metrics::Tally;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Largest(f64);
///
/// impl Tally for Largest {
///     fn merge(&mut self, later: Self) {
///         self.0 = self.0.max(later.0);
///     }
///
///     fn finish(&self) -> Vec<f64> {
///         vec![self.0]
///     }
/// }
///
/// let mut all = Largest(0.5);
/// all.merge(Largest(2.0));
/// assert_eq!(all.finish(), [2.0]);
/// ```
pub trait Tally: Serialize + DeserializeOwned + 'static {
    /// Adds the tally of the samples that follow.
    fn merge(&mut self, later: Self);

    /// Returns the values of the metrics, in their order.
    fn finish(&self) -> Vec<f64>;

    /// Returns what the summary of the run says about each class, if the tally counts classes.
    fn classification(&self) -> Option<Classification> {
        None
    }
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

    fn classification(&self) -> Option<Classification> {
        self.iter().find_map(T::classification)
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

    fn classification(&self) -> Option<Classification> {
        self.0.classification().or_else(|| self.1.classification())
    }
}

/// The exponential of a mean loss over tokens, for [`Metric::PERPLEXITY`](crate::Metric::PERPLEXITY).
///
/// ```
/// use kolo_metrics::{Mean, Perplexity, Tally};
///
/// let losses = Mean { sum: 6.0, count: 3.0 };
/// assert!((Perplexity(losses).finish()[0] - 2.0f64.exp()).abs() < 1e-12);
/// ```
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

impl Tally for Confusion {
    fn merge(&mut self, later: Self) {
        self.add(later);
    }

    fn finish(&self) -> Vec<f64> {
        let classes = self.by_class();
        let mean =
            |index: usize| classes.values().map(|scores| scores[index]).sum::<f64>() / classes.len() as f64;
        vec![self.accuracy(), mean(0), mean(1), mean(2)]
    }

    fn classification(&self) -> Option<Classification> {
        Some(self.clone().into())
    }
}

impl Tally for Classification {
    fn merge(&mut self, later: Self) {
        self.add(later);
    }

    fn finish(&self) -> Vec<f64> {
        vec![self.confusion.accuracy()]
    }

    fn classification(&self) -> Option<Classification> {
        Some(self.clone())
    }
}

/// Returns the share of samples whose label is among the `most` classes with the highest scores. Of equal
/// scores the lower class counts first. A sample without a [`best_class`] does not count. `scores` has a row
/// for each label.
///
/// ```
/// use kolo_metrics::{Mean, top_k};
///
/// let scores = [0.1, 0.5, 0.4, 0.2, 0.3, 0.1]; // two samples, three classes
/// assert_eq!(top_k(&scores, &[2, 2], 2), Mean { sum: 1.0, count: 2.0 });
/// ```
pub fn top_k(scores: &[f32], labels: &[u32], most: usize) -> Mean {
    let classes = scores.len() / labels.len().max(1);
    let is_in = |(row, label): &(&[f32], &u32)| {
        let (label, own) = (**label as usize, row[**label as usize]);
        let before = |(class, score): (usize, &f32)| *score > own || *score == own && class < label;
        best_class(row).is_some() && row.iter().enumerate().filter(|other| before(*other)).count() < most
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
        let scores = [f32::NAN, 1.0, f32::NAN, f32::NAN, 2.0, 1.0];
        assert_eq!(top_k(&scores, &[1, 0, 1], 2).finish(), [1.0 / 3.0], "only the last row is finite");
        assert_eq!(top_k(&[], &[], 5), Mean { sum: 0.0, count: 0.0 });
    }

    #[test]
    fn a_perplexity_is_the_exponential_of_all_samples_mean() {
        let mut one = (Perplexity(Mean { sum: 3.0, count: 2.0 }), Mean { sum: 1.0, count: 4.0 });
        one.merge((Perplexity(Mean { sum: 5.0, count: 6.0 }), Mean { sum: 1.0, count: 4.0 }));
        assert_eq!(one.finish(), [libm::exp(1.0), 0.25]);
    }
}
