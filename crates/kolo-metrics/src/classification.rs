//! Counts of a classifier: the confusion of its classes, and the samples that it gets most wrong.

use std::collections::BTreeMap;

use kolo_data::{DataSet, Part};
use kolo_run_folder::{ClassScores, WrongSample};
use serde::{Deserialize, Serialize};

use crate::metric::{Metric, part_name};

/// Wrong samples that are kept.
const MOST_WRONG: usize = 10;

/// Counts of samples by their class and the class that the model guessed, for [`Confusion::METRICS`].
///
/// ```
/// use kolo_metrics::Confusion;
///
/// let counts = Confusion::of([0, 0, 1], [0, 1, 1]); // labels, and the model's guesses
/// assert_eq!(counts.count(0, 1), 1);
/// assert_eq!(counts.accuracy(), 2.0 / 3.0);
/// ```
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

    /// Adds the counts of other samples.
    pub(crate) fn add(&mut self, other: Self) {
        other.0.into_iter().for_each(|(pair, count)| *self.0.entry(pair).or_insert(0) += count);
    }

    /// Guess of a sample that has none, because its scores are not finite. It is never right.
    pub const NO_GUESS: u32 = u32::MAX;

    /// Number of samples without a guess.
    pub fn not_finite(&self) -> u64 {
        self.0.iter().filter(|((_, guess), _)| *guess == Self::NO_GUESS).map(|(_, count)| count).sum()
    }

    /// Number of samples of this class that the model took for `guess`.
    pub fn count(&self, label: u32, guess: u32) -> u64 {
        self.0.get(&(label, guess)).copied().unwrap_or(0)
    }

    /// Number of samples of this class by the class that the model took them for, without zeros.
    pub fn row(&self, label: u32) -> BTreeMap<u32, u64> {
        let of_label = self.0.range((label, 0)..=(label, u32::MAX));
        of_label.map(|((_, guess), count)| (*guess, *count)).collect()
    }

    /// Number of all samples.
    pub fn samples(&self) -> u64 {
        self.0.values().sum()
    }

    /// Share of the samples that the model took for their class.
    pub fn accuracy(&self) -> f64 {
        let right = self.0.iter().filter(|((label, guess), _)| label == guess && *guess != Self::NO_GUESS);
        right.map(|(_, count)| count).sum::<u64>() as f64 / self.samples() as f64
    }

    /// Precision, recall and F1 score of each class that has samples or was guessed.
    pub fn by_class(&self) -> BTreeMap<u32, [f64; 3]> {
        // Right guesses, samples, and guesses.
        let mut counts: BTreeMap<u32, [u64; 3]> = BTreeMap::new();
        for ((label, guess), count) in &self.0 {
            counts.entry(*label).or_default()[1] += count;
            if *guess == Self::NO_GUESS {
                continue;
            }
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

/// Counts of samples by class and predicted class, and the most wrong samples. The summary of a run and
/// `kolo report` show them; the metric is [`Metric::ACCURACY`].
///
/// ```
/// use kolo_metrics::Classification;
///
/// let scores = [2.0, 0.0, 3.0, 1.0]; // two samples, two classes
/// assert_eq!(Classification::of(&scores, &[0, 1]).confusion.accuracy(), 0.5);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Classification {
    /// Counts of the samples.
    pub confusion: Confusion,
    /// The most probable wrong predictions, by falling probability; of equals the first sample is first.
    wrong: Vec<Wrong>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Wrong {
    /// Index among the samples of the tally.
    sample: u64,
    label: u32,
    predicted: u32,
    probability: f64,
}

impl Classification {
    /// The metrics of this tally.
    pub const METRICS: [Metric; 1] = [Metric::ACCURACY];

    /// Counts a batch. `scores` has a row for each label: of each class the score before softmax. The
    /// predicted class is that of [`best_class`]; a sample without one is wrong.
    pub fn of(scores: &[f32], labels: &[u32]) -> Self {
        let classes = (scores.len() / labels.len().max(1)).max(1);
        let predicted: Vec<u32> =
            scores.chunks(classes).map(|row| best_class(row).unwrap_or(Confusion::NO_GUESS)).collect();
        let rows = scores.chunks(classes).zip(labels).zip(&predicted).enumerate();
        let wrong = rows
            .filter(|(_, ((_, label), predicted))| label != predicted && **predicted != Confusion::NO_GUESS);
        let wrong = wrong.map(|(sample, ((row, label), predicted))| Wrong {
            sample: sample as u64,
            label: *label,
            predicted: *predicted,
            probability: softmax(row)[*predicted as usize],
        });
        let wrong = most_probable(wrong.collect());
        Classification { confusion: Confusion::of(labels.iter().copied(), predicted), wrong }
    }

    /// Adds the counts of the samples that follow.
    pub(crate) fn add(&mut self, mut later: Self) {
        let before = self.confusion.samples();
        later.wrong.iter_mut().for_each(|wrong| wrong.sample += before);
        self.wrong.append(&mut later.wrong);
        self.wrong = most_probable(std::mem::take(&mut self.wrong));
        self.confusion.add(later.confusion);
    }

    /// Describes the tally of all samples of a part: with the names of classes and samples.
    pub fn described<D: DataSet + ?Sized>(&self, part: Part, data: &D) -> kolo_run_folder::Classification {
        let how = data.preprocessing();
        let scores = self.confusion.by_class();
        let seen = scores.keys().last().map_or(0, |class| class + 1);
        let classes = how.as_ref().map_or(seen, |how| (how.num_classes as u32).max(seen));
        let names = how.map(|how| how.label_names).unwrap_or_default();
        let name = |class: u32| names.get(class as usize).cloned().unwrap_or_else(|| class.to_string());
        let class = |label| {
            let [precision, recall, f1] = scores.get(&label).copied().unwrap_or_default();
            let mut predicted = self.confusion.row(label);
            let samples = predicted.values().sum();
            predicted.remove(&Confusion::NO_GUESS);
            ClassScores { class: name(label), samples, precision, recall, f1, predicted }
        };
        let sample = |wrong: &Wrong| WrongSample {
            sample: wrong.sample,
            name: data.sample_name(part, wrong.sample as usize),
            class: name(wrong.label),
            predicted: name(wrong.predicted),
            probability: wrong.probability,
        };
        kolo_run_folder::Classification {
            part: part_name(part).into(),
            classes: (0..classes).map(class).collect(),
            not_finite: self.confusion.not_finite(),
            most_wrong: self.wrong.iter().map(sample).collect(),
        }
    }
}

impl From<Confusion> for Classification {
    fn from(confusion: Confusion) -> Self {
        Classification { confusion, wrong: Vec::new() }
    }
}

fn most_probable(mut wrong: Vec<Wrong>) -> Vec<Wrong> {
    wrong.sort_by(|a, b| b.probability.total_cmp(&a.probability).then(a.sample.cmp(&b.sample)));
    wrong.truncate(MOST_WRONG);
    wrong
}

/// Returns the first class with the highest score. There is none if a score is NaN or +∞, or all are −∞:
/// softmax gives no probabilities then. A score of −∞ beside others is that of a masked class.
///
/// ```
/// use kolo_metrics::best_class;
///
/// assert_eq!(best_class(&[0.1, 0.7, 0.7]), Some(1));
/// assert_eq!(best_class(&[0.1, f32::NAN]), None);
/// ```
pub fn best_class(scores: &[f32]) -> Option<u32> {
    let higher = |best: usize, class: usize| if scores[class] > scores[best] { class } else { best };
    let best = (1..scores.len()).fold(0, higher);
    let has_best = scores.get(best)?.is_finite() && !scores.iter().any(|score| score.is_nan());
    has_best.then_some(best as u32)
}

/// Returns the probability of each class by its score: exp(score) / Σ exp(scores).
///
/// ```
/// assert_eq!(kolo_metrics::softmax(&[1.0, 1.0]), [0.5, 0.5]);
/// ```
pub fn softmax(scores: &[f32]) -> Vec<f64> {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f64> = scores.iter().map(|score| libm::exp(f64::from(score - largest))).collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two classes whose scores differ by the logarithm of the odds.
    fn row(odds: f32) -> [f32; 2] {
        [0.0, odds.ln()]
    }

    #[test]
    fn probabilities_have_the_sum_1_and_large_scores_do_not_overflow() {
        assert_eq!(softmax(&[1.0, 1.0]), [0.5, 0.5]);
        let found = softmax(&[1000.0, 1000.0 - 3.0_f32.ln()]);
        assert!((found[0] - 0.75).abs() < 1e-5 && (found[1] - 0.25).abs() < 1e-5, "{found:?}");
    }

    #[test]
    fn the_most_wrong_samples_are_those_of_the_whole_wherever_batches_end() {
        // Class 1 has the probabilities 3/4, 1/5, 9/10, 1/2 (a tie: class 0), 3/4.
        let scores = [3.0, 0.25, 9.0, 1.0, 3.0].map(row);
        let labels = [0, 1, 0, 1, 0];
        let whole = Classification::of(scores.as_flattened(), &labels);
        let found: Vec<_> = whole.wrong.iter().map(|wrong| (wrong.sample, wrong.predicted)).collect();
        assert_eq!(found, [(2, 1), (1, 0), (0, 1), (4, 1), (3, 0)]);
        for (wrong, expected) in whole.wrong.iter().zip([0.9, 0.8, 0.75, 0.75, 0.5]) {
            assert!((wrong.probability - expected).abs() < 1e-6, "{wrong:?}");
        }
        assert_eq!((whole.confusion.accuracy(), whole.confusion.count(0, 1)), (0.0, 3));
        for cut in 0..=5 {
            let mut merged = Classification::of(scores[..cut].as_flattened(), &labels[..cut]);
            merged.add(Classification::of(scores[cut..].as_flattened(), &labels[cut..]));
            assert_eq!(merged, whole, "{cut}");
        }
        let many = Classification::of([row(2.0); 12].as_flattened(), &[0; 12]);
        assert_eq!(many.wrong.iter().map(|wrong| wrong.sample).collect::<Vec<_>>(), Vec::from_iter(0..10));
    }

    #[test]
    fn a_sample_whose_scores_are_not_finite_is_wrong() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let scores = [[nan, nan], [1.0, nan], [nan, 1.0], [inf, 0.0], [0.0, inf], [-inf, -inf], [1.0, -inf]];
        let found = Classification::of(scores.as_flattened(), &[0, 0, 1, 0, 1, 0, 0]);
        // Only the last is right, of five samples of class 0 and two of class 1.
        assert_eq!((found.confusion.accuracy(), found.confusion.not_finite()), (1.0 / 7.0, 6));
        let by_class = found.confusion.by_class();
        let classes: Vec<_> = by_class.into_iter().map(|(class, [p, r, _])| (class, p, r)).collect();
        assert_eq!(classes, [(0, 1.0, 0.2), (1, 0.0, 0.0)]);
        assert_eq!((found.confusion.count(0, 0), found.wrong.len()), (1, 0));
    }
}
