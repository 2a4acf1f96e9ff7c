//! Scores of each class, as `summary.json` and `kolo evaluate --json` have them.

use std::collections::BTreeMap;

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
