//! A trained model of any type.

use burn::tensor::Device;
use kolo_burn::{Precision, with_precision};
use kolo_burn_train::image_tensors;
use kolo_data::{Batch, DataError, ImageDataSet, Part};

use crate::image_model::ImageModel;

/// A trained model of images, of unknown type.
pub trait Classifier {
    /// Returns the score of each class before softmax, image by image, in the host's memory.
    fn scores(&self, batch: Batch) -> Vec<f32>;
}

pub(crate) struct ModelClassifier<M> {
    /// The model, without autodiff.
    pub(crate) model: M,
    pub(crate) device: Device,
    /// Type of the computations.
    pub(crate) precision: Precision,
}

impl<M: ImageModel> Classifier for ModelClassifier<M> {
    fn scores(&self, batch: Batch) -> Vec<f32> {
        let (images, _) = image_tensors(batch, &self.device);
        let scores = with_precision(self.precision, || self.model.scores(images));
        scores.into_data().iter::<f32>().collect()
    }
}

/// Returns test images. The error of a file names what helps here, where no run begins.
pub(super) fn test_batch(data: &dyn ImageDataSet, indices: &[usize]) -> Result<Batch, DataError> {
    data.batch(Part::Test, indices, None).map_err(|error| match error {
        DataError::SampleFile { file, problem, .. } => {
            DataError::NoImage { path: file, problem: problem + "; restore or remove the file" }
        }
        error => error,
    })
}
