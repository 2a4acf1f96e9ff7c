//! The scores of a run so far, from which all workers draw the same conclusions: the best model, and the time
//! to stop.

use serde::{Deserialize, Serialize};

use crate::metric::{Metric, Score, Scores};

/// The scores after some step, in the order of the metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Evaluation {
    step: u64,
    values: Vec<f64>,
}

/// All evaluations, by rising step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluations(Vec<Evaluation>);

/// The best evaluation, the first of equals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// Steps done at the evaluation.
    pub step: u64,
    /// Number of evaluations since.
    pub since: usize,
}

impl Evaluations {
    /// Adds the scores after `step` steps, and forgets those of that step and later ones.
    pub(crate) fn add(&mut self, step: u64, scores: &Scores) {
        self.forget_after(step - 1);
        if !scores.0.is_empty() {
            let values = scores.0.iter().map(|score| score.value).collect();
            self.0.push(Evaluation { step, values });
        }
    }

    /// Returns the scores after `step` steps, by these metrics, if the model was evaluated there.
    pub fn scores(&self, step: u64, metrics: &[Metric]) -> Option<Scores> {
        let there = self.0.iter().find(|evaluation| evaluation.step == step)?;
        let score = |(metric, value): (&Metric, &f64)| Score { metric: *metric, value: *value };
        Some(Scores(metrics.iter().zip(&there.values).map(score).collect()))
    }

    /// Number of evaluations.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn forget_after(&mut self, step: u64) {
        self.0.retain(|evaluation| evaluation.step <= step);
    }

    /// Returns the best evaluation by `metric`, which is at `index` of the values; `None` if all values are
    /// NaN.
    pub fn best(&self, metric: Metric, index: usize) -> Option<Best> {
        let value = |evaluation: &Evaluation| evaluation.values.get(index).copied().unwrap_or(f64::NAN);
        let mut best: Option<usize> = None;
        for (at, evaluation) in self.0.iter().enumerate().filter(|(_, one)| !value(one).is_nan()) {
            if best.is_none_or(|best| metric.is_better(value(evaluation), value(&self.0[best]))) {
                best = Some(at);
            }
        }
        best.map(|best| Best { step: self.0[best].step, since: self.0.len() - 1 - best })
    }

    /// Returns the evaluations for a checkpoint's notes, as text: JSON's numbers may lose bits.
    pub(crate) fn to_notes(&self) -> Vec<(u64, Vec<String>)> {
        let text =
            |Evaluation { step, values }: &Evaluation| (*step, values.iter().map(f64::to_string).collect());
        self.0.iter().map(text).collect()
    }

    /// Reads the evaluations from a checkpoint's notes; none from notes of another version.
    pub(crate) fn from_notes(notes: &serde_json::Value) -> Self {
        let read: Vec<(u64, Vec<String>)> = serde_json::from_value(notes.clone()).unwrap_or_default();
        let number = |text: &String| text.parse().unwrap_or(f64::NAN);
        let evaluation = |(step, values): (u64, Vec<String>)| Evaluation {
            step,
            values: values.iter().map(number).collect(),
        };
        Evaluations(read.into_iter().map(evaluation).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(value: f64) -> Scores {
        Scores(vec![Score { metric: Metric::ACCURACY, value }, Score { metric: Metric::LOSS, value }])
    }

    fn of(values: &[f64]) -> Evaluations {
        let mut all = Evaluations::default();
        values.iter().enumerate().for_each(|(at, value)| all.add(10 * (at as u64 + 1), &scores(*value)));
        all
    }

    #[test]
    fn the_first_of_equals_is_the_best() {
        let best = |values: &[f64], metric, index| of(values).best(metric, index);
        assert_eq!(best(&[0.5, 0.7, 0.7, 0.6], Metric::ACCURACY, 0), Some(Best { step: 20, since: 2 }));
        assert_eq!(best(&[0.5, 0.7, 0.4, 0.4], Metric::LOSS, 1), Some(Best { step: 30, since: 1 }));
        assert_eq!(best(&[f64::NAN, 0.1, f64::NAN], Metric::LOSS, 1), Some(Best { step: 20, since: 1 }));
        assert_eq!(best(&[f64::NAN, f64::NAN], Metric::LOSS, 1), None);
        assert_eq!(best(&[], Metric::LOSS, 1), None);
    }

    #[test]
    fn a_step_that_is_done_again_counts_once() {
        let mut all = of(&[0.5, 0.7, 0.6]);
        all.add(30, &scores(0.6));
        assert_eq!(all, of(&[0.5, 0.7, 0.6]));
        all.forget_after(20);
        assert_eq!(all, of(&[0.5, 0.7]));
    }

    #[test]
    fn notes_keep_every_bit() {
        let all = of(&[0.1 + 0.2, 1.0 / 3.0]);
        let text = serde_json::to_string(&all.to_notes()).unwrap();
        assert_eq!(Evaluations::from_notes(&serde_json::from_str(&text).unwrap()), all);
        assert_eq!(Evaluations::from_notes(&serde_json::Value::Null), Evaluations::default());
    }
}
