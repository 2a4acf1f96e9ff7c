//! Scores of each class, as `summary.json` and `kolo evaluate --json` have them.

use std::collections::BTreeMap;

use kolo_schedule::words::counted;
use serde::{Deserialize, Serialize};

/// Scores of a classifier by class, over the samples of one part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Classification {
    /// Part of the samples: `test` or `val`.
    pub part: String,
    /// The classes, by label.
    pub classes: Vec<ClassScores>,
    /// Number of samples whose scores are not finite. They are in no class's `predicted`, and count as wrong.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_finite: u64,
    /// Wrongly classified samples, those with the most probable wrong class first.
    pub most_wrong: Vec<WrongSample>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Classification {
    /// Checks numbers that cannot belong together: the field, and what is wrong with it.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (mut all, mut without_class) = (0_u64, 0);
        for (label, class) in self.classes.iter().enumerate() {
            let field = |name: &str| format!("classification.classes[{label}].{name}");
            let sum = class.predicted.values().try_fold(0_u64, |sum, count| sum.checked_add(*count));
            let Some(rest) = sum.and_then(|sum| class.samples.checked_sub(sum)) else {
                return Err(format!(
                    "{} is {}, less than the sum of predicted",
                    field("samples"),
                    class.samples
                ));
            };
            let total = all.checked_add(class.samples);
            without_class += rest;
            all = total.ok_or_else(|| format!("{}: so many samples cannot be counted", field("samples")))?;
            for (name, share) in [("precision", class.precision), ("recall", class.recall), ("f1", class.f1)]
            {
                check_share(&field(name), share)?;
            }
        }
        if without_class != self.not_finite {
            let (missing, noted) = (counted(without_class, "sample"), self.not_finite);
            return Err(format!(
                "classification.classes: {missing} without a predicted class, and classification.not_finite is {noted}"
            ));
        }
        for (index, wrong) in self.most_wrong.iter().enumerate() {
            check_share(&format!("classification.most_wrong[{index}].probability"), wrong.probability)?;
        }
        Ok(())
    }
}

fn check_share(field: &str, share: f64) -> Result<(), String> {
    // Probabilities are rounded.
    match (0.0..=1.0 + 1e-9).contains(&share) {
        true => Ok(()),
        false => Err(format!("{field} is {share}, not in 0 to 1")),
    }
}

/// Scores of a class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassScores {
    /// Name of the class; its label if it has no name.
    pub class: String,
    /// Number of its samples.
    pub samples: u64,
    /// Share of the samples predicted as this class that are of it; 0 without any.
    pub precision: f64,
    /// Share of its samples that are predicted as this class, which is the accuracy on them; 0 without any.
    pub recall: f64,
    /// Harmonic mean of precision and recall.
    pub f1: f64,
    /// Number of its samples by predicted label, without zeros: a row of the confusion matrix.
    pub predicted: BTreeMap<u32, u64>,
}

/// A sample that the model takes for another class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WrongSample {
    /// Index of the sample in its part, from 0.
    pub sample: u64,
    /// Name of the sample, as of its file, if the data set knows one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Name of its class.
    pub class: String,
    /// Name of the predicted class.
    pub predicted: String,
    /// Probability of the predicted class by the model.
    pub probability: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_cannot_belong_together_are_named() {
        let class = |samples, predicted: &[(u32, u64)]| ClassScores {
            class: "cat".into(),
            samples,
            precision: 1.0,
            recall: 0.75,
            f1: 6.0 / 7.0,
            predicted: predicted.iter().copied().collect(),
        };
        let of = |classes, not_finite| Classification {
            part: "test".into(),
            classes,
            not_finite,
            most_wrong: vec![],
        };
        let check = |classes| of(classes, 0).check();
        let right = class(4, &[(0, 3), (1, 1)]);
        assert_eq!(check(vec![right.clone(), class(u64::MAX - 4, &[(1, u64::MAX - 4)])]), Ok(()));
        // A sample of each without finite scores.
        let with_two = vec![class(5, &[(0, 3), (1, 1)]), class(1, &[])];
        assert_eq!(of(with_two, 2).check(), Ok(()));
        for (class, problem) in [
            (
                class(4, &[(0, u64::MAX), (1, u64::MAX)]),
                "classes[1].samples is 4, less than the sum of predicted",
            ),
            (class(3, &[(0, 3), (1, 1)]), "classes[1].samples is 3, less than the sum of predicted"),
            (
                class(5, &[(0, 3), (1, 1)]),
                "classes: 1 sample without a predicted class, and classification.not_finite is 0",
            ),
            (class(u64::MAX, &[(1, u64::MAX)]), "classes[1].samples: so many samples cannot be counted"),
            (ClassScores { precision: -0.1, ..right.clone() }, "classes[1].precision is -0.1, not in 0 to 1"),
            (ClassScores { recall: 1.5, ..right.clone() }, "classes[1].recall is 1.5, not in 0 to 1"),
            (ClassScores { f1: 2.0, ..right.clone() }, "classes[1].f1 is 2, not in 0 to 1"),
        ] {
            assert_eq!(check(vec![right.clone(), class]), Err(format!("classification.{problem}")));
        }
    }
}
