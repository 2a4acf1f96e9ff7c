//! Classes of a user's own files.

use std::path::Path;

use kolo_burn_train::{best_class, softmax};
use kolo_data::{Batch, SampleFiles};
use kolo_weights::{WeightsError, Which};

use super::classifier::Classifier;
use super::subject::{Given, Subject};
use crate::error::Error;
use crate::table;

/// A trained model with all that it needs to classify files: preprocessing, and names of classes.
pub struct Predictor {
    /// Reads files as the model's samples.
    pub files: SampleFiles,
    classifier: Box<dyn Classifier>,
    classes: Vec<String>,
}

kolo_comm::opaque_debug!(Predictor { classes });

/// A class of a sample, and its probability.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Prediction {
    /// Name of the class; its number if it has no name.
    pub class: String,
    /// Number of the class.
    pub label: usize,
    /// Probability by the model, from 0 to 1; all classes have 1 together.
    pub probability: f64,
}

impl Predictor {
    /// Makes the model of the weights at a path, as [`Subject::find`] finds them.
    ///
    /// # Errors
    ///
    /// There are no weights, they are damaged, or nothing says how samples come to their model.
    pub fn find(path: &Path, which: Option<Which>) -> Result<Self, Error> {
        let subject = Subject::find(path, which, &Given::default()).map_err(|error| match error {
            Error::Weights(WeightsError::Undescribed { path }) => Error::NoPreprocessing { path },
            other => other,
        })?;
        let model = table::find(&subject.config.model)?;
        if model.traits().reads_text {
            return Err(Error::NoClasses { model: model.name() });
        }
        let how = subject.preprocessing.clone();
        let how = how.ok_or_else(|| Error::NoPreprocessing { path: path.into() })?;
        let files =
            SampleFiles::new(how).map_err(|problem| Error::Preprocessing { path: path.into(), problem })?;
        let classes = files.classes();
        let classifier = subject.classifier(files.shape())?;
        Ok(Predictor { files, classifier, classes })
    }

    /// Returns the names of the classes by label.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Returns the most probable `count` classes of each sample, the most probable one first. Of two that are
    /// equally probable, the smaller label is first. A sample whose scores are not finite has `None`.
    pub fn predict(&self, batch: Batch, count: usize) -> Vec<Option<Vec<Prediction>>> {
        let scores = self.classifier.scores(batch);
        scores.chunks_exact(self.classes.len()).map(|scores| self.best(scores, count)).collect()
    }

    fn best(&self, scores: &[f32], count: usize) -> Option<Vec<Prediction>> {
        best_class(scores)?;
        let probabilities = softmax(scores);
        let mut labels: Vec<usize> = (0..scores.len()).collect();
        labels.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        let prediction = |label: usize| Prediction {
            class: self.classes[label].clone(),
            label,
            probability: probabilities[label],
        };
        Some(labels.into_iter().take(count).map(prediction).collect())
    }
}
