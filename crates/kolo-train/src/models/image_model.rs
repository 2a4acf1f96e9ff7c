//! What the table needs of a model.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use kolo_burn::Loss;
use kolo_data::{Batch, SampleShape};

use super::config::Stem;
use crate::model::{TrainingContext, count_correct};
use crate::tensors::image_tensors;

/// A model of images: any Burn module that gives each class a score.
pub trait ImageModel: Module {
    /// Scores before softmax in training.
    ///
    /// They may depend on nothing but the parameters and the arguments: then the result is the same for any
    /// number of workers.
    ///
    /// # Shapes
    ///
    /// - `images`: `[batch, channels, height, width]`, at least one of them
    /// - output: `[batch, classes]`
    fn training_scores(&self, images: Tensor<4>, context: &TrainingContext<'_>) -> Tensor<2>;

    /// Scores before softmax in evaluation. Shapes as in [`ImageModel::training_scores`].
    fn scores(&self, images: Tensor<4>) -> Tensor<2>;

    /// The loss of one shard's samples in training.
    fn loss(&self, batch: Batch, context: &TrainingContext<'_>) -> Loss {
        let (images, labels) = image_tensors(batch, context.device);
        context.cross_entropy(self.training_scores(images, context), labels)
    }

    /// How many samples of `batch` the model classifies rightly, in evaluation.
    fn correct(&self, batch: Batch, device: &Device) -> usize {
        let (images, labels) = image_tensors(batch, device);
        count_correct(self.scores(images), labels)
    }
}

/// What a model of the table has to know to be built: every rank builds the same one.
#[derive(Clone, Copy, Debug)]
pub struct Blueprint<'a> {
    /// Seed of all initial values.
    pub seed: u64,
    /// What the samples look like.
    pub samples: SampleShape,
    /// Share of the features before the last layer that a training step drops.
    pub dropout: f64,
    /// How images come in, where a network has several ways; `None` is its own.
    pub stem: Option<Stem>,
    /// See [`ResNetConfig::zero_gamma`](super::ResNetConfig::zero_gamma).
    pub zero_gamma: bool,
    /// Where the parameters go; with autodiff.
    pub device: &'a Device,
}
