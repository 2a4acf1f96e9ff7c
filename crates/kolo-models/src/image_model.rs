//! Requirements of the table on a model.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use kolo_burn::Loss;
use kolo_data::{Batch, SampleShape};

use kolo_burn_train::{Classification, TrainingContext, classification, image_tensors};
use kolo_recipe::{Recipe, Stem};

/// A model of images: any Burn module that gives each class a score.
pub trait ImageModel: Module {
    /// Returns scores before softmax in training.
    ///
    /// They must depend on nothing but the parameters and the arguments: then the result is the same for any
    /// number of workers.
    ///
    /// # Shapes
    ///
    /// - `images`: `[batch, channels, height, width]`, at least one of them
    /// - output: `[batch, classes]`
    fn training_scores(&self, images: Tensor<4>, context: &TrainingContext<'_>) -> Tensor<2>;

    /// Returns scores before softmax in evaluation. Shapes as in [`ImageModel::training_scores`].
    fn scores(&self, images: Tensor<4>) -> Tensor<2>;

    /// Returns the loss of one shard's samples in training.
    fn loss(&self, batch: Batch, context: &TrainingContext<'_>) -> Loss {
        let (images, labels) = image_tensors(batch, context.device);
        context.cross_entropy(self.training_scores(images, context), labels)
    }

    /// Counts the samples of `batch` by class and predicted class, in evaluation.
    fn classification(&self, batch: Batch, device: &Device) -> Classification {
        let (images, labels) = image_tensors(batch, device);
        classification(self.scores(images), labels)
    }
}

/// Description of a model of the table, from which every rank builds the same one.
#[derive(Clone, Copy, Debug)]
pub struct Blueprint<'a> {
    /// Seed of all initial values.
    pub seed: u64,
    /// Shape of the samples.
    pub samples: SampleShape,
    /// Share of the features before the last layer that a training step drops; a language model drops in all
    /// layers.
    pub dropout: f64,
    /// First layers, if a network has several kinds; `None` is its default.
    pub stem: Option<Stem>,
    /// See [`ResNetConfig::zero_gamma`](super::ResNetConfig::zero_gamma).
    pub zero_gamma: bool,
    /// True if a language model computes its blocks a second time in the backward pass.
    pub activation_checkpointing: bool,
    /// Device of the parameters, with autodiff.
    pub device: &'a Device,
}

impl<'a> Blueprint<'a> {
    /// Describes the model of a recipe for such samples.
    pub fn of(recipe: &Recipe, samples: SampleShape, device: &'a Device) -> Self {
        Blueprint {
            seed: recipe.seed,
            samples,
            dropout: recipe.dropout,
            stem: recipe.stem,
            zero_gamma: recipe.large_batch.zero_gamma,
            activation_checkpointing: recipe.activation_checkpointing,
            device,
        }
    }

    /// Describes the model of a seed for such samples without any option.
    pub fn plain(seed: u64, samples: SampleShape, device: &'a Device) -> Self {
        let (stem, zero_gamma, activation_checkpointing) = (None, false, false);
        Blueprint { seed, samples, dropout: 0.0, stem, zero_gamma, activation_checkpointing, device }
    }
}
