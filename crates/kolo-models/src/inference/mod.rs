//! Inference with a trained model: its scores on the test samples, and its latency.
//!
//! [`Subject::find`] finds the weights, the model and the data that belong to a path; [`Subject::load`] makes
//! a [`Classifier`] of them, which [`classify`] evaluates and [`latency`] times. A [`Predictor`] classifies
//! files instead, and [`score_text`] evaluates a language model.

mod classifier;
mod latency;
mod predictor;
mod subject;
mod text;

use kolo_burn_train::{Classification, Tally};
use kolo_data::{DataError, ImageDataSet, Part};

pub use classifier::Classifier;
pub(crate) use classifier::ModelClassifier;
use classifier::test_batch;
pub use latency::{Latency, latency};
pub use predictor::{Prediction, Predictor};
pub use subject::{Given, Subject};
pub use text::{TextScores, score_text};

/// Counts the test images by class and predicted class, in batches of `batch_size`; `None` without test
/// images. The accuracy equals a training's after an epoch, to the last bit.
///
/// # Errors
///
/// An image cannot be read.
pub fn classify(
    classifier: &dyn Classifier,
    data: &dyn ImageDataSet,
    batch_size: usize,
) -> Result<Option<Classification>, DataError> {
    let indices: Vec<usize> = (0..data.samples(Part::Test)).collect();
    let mut all: Option<Classification> = None;
    for batch in indices.chunks(batch_size.max(1)) {
        let batch = test_batch(data, batch)?;
        let labels = batch.labels.clone();
        let counts = Classification::of(&classifier.scores(batch), &labels);
        match &mut all {
            Some(all) => all.merge(counts),
            None => all = Some(counts),
        }
    }
    Ok(all)
}
