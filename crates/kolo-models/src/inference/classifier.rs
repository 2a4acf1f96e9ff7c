//! A trained model of any type.

use burn::tensor::Device;
use kolo_burn::{Precision, with_precision};
use kolo_burn_train::image_tensors;
use kolo_data::Batch;

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
