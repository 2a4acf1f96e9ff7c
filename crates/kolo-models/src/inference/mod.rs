//! Inference with a trained model: its accuracy on the test samples, and its latency.
//!
//! [`Subject::find`] finds the weights, the model and the data that belong to a path; [`Subject::load`] makes
//! a [`Classifier`] of them, which [`accuracy`] evaluates and [`latency`] times. A [`Predictor`] classifies
//! files instead.

mod classifier;
mod latency;
mod predictor;
mod subject;

use kolo_data::{DataError, ImageDataSet, Part};

pub use classifier::Classifier;
pub(crate) use classifier::ModelClassifier;
pub use latency::{Latency, latency};
pub use predictor::{Prediction, Predictor};
pub use subject::{Given, Subject};

/// Returns the share of correctly classified test images, in batches of `batch_size`; `None` without test
/// images. It equals a training's accuracy after an epoch, to the last bit.
///
/// # Errors
///
/// An image cannot be read.
pub fn accuracy(
    classifier: &dyn Classifier,
    data: &dyn ImageDataSet,
    batch_size: usize,
) -> Result<Option<f64>, DataError> {
    let indices: Vec<usize> = (0..data.samples(Part::Test)).collect();
    let batches = indices.chunks(batch_size.max(1));
    let mut correct = 0;
    for batch in batches {
        correct += classifier.correct(data.batch(Part::Test, batch, None)?);
    }
    Ok((!indices.is_empty()).then(|| correct as f64 / indices.len() as f64))
}
