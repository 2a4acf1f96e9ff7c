//! What the table needs of a model.

use burn::module::Module;
use burn::tensor::Device;
use kolo_burn::Loss;
use kolo_data::{Batch, SampleShape};

use crate::model::TrainingContext;

/// A model of images: any Burn module that has a loss and can be tested.
pub trait ImageModel: Module {
    /// The loss of one shard's samples in training.
    ///
    /// It may depend on nothing but the parameters and the arguments: then the result is the same for any
    /// number of workers. The batch has at least one sample.
    fn loss(&self, batch: Batch, context: &TrainingContext<'_>) -> Loss;

    /// How many samples of `batch` the model classifies rightly, in evaluation.
    fn correct(&self, batch: Batch, device: &Device) -> usize;
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
    /// Where the parameters go; with autodiff.
    pub device: &'a Device,
}
