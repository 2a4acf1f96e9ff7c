//! What a run needs of a model.

use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::{Device, Int, Tensor};
use kolo_burn::{DropoutKey, Loss};
use kolo_data::{Batch, SampleShape};
use kolo_ddp::cross_shard::CrossShardPass;

/// A model that can be trained: any Burn module that has a loss.
pub trait Model: Module {
    /// The loss of one shard's samples in training.
    ///
    /// It may depend on nothing but the parameters and the arguments: then the result is the same for any
    /// number of workers. The batch has at least one sample.
    fn loss(&self, batch: Batch, context: &TrainingContext<'_>) -> Loss;

    /// How many samples of `batch` the model classifies rightly, in evaluation.
    fn correct(&self, batch: Batch, device: &Device) -> usize;
}

/// What a model has to know to be built: every rank builds the same one.
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

/// Where in a training a loss is computed.
#[derive(Clone, Copy, Debug)]
pub struct TrainingContext<'a> {
    /// By which dropout draws its masks.
    pub dropout: &'a DropoutKey,
    /// Present where normalisations are over the global batch: they go through
    /// [`sync_batch_norm`](kolo_burn::sync_batch_norm).
    pub cross_shard: Option<&'a CrossShardPass>,
    /// The device of the model's parameters.
    pub device: &'a Device,
}

/// The mean cross entropy of a classifier's scores, before softmax.
///
/// # Shapes
///
/// - `scores`: `[samples, classes]`
/// - `labels`: `[samples]`
pub fn cross_entropy(scores: Tensor<2>, labels: Tensor<1, Int>) -> Loss {
    let count = labels.dims()[0];
    Loss::mean(CrossEntropyLossConfig::new().init(&scores.device()).forward(scores, labels), count)
}

/// How many samples have their highest score at their label. Shapes as in [`cross_entropy`].
pub fn count_correct(scores: Tensor<2>, labels: Tensor<1, Int>) -> usize {
    let guesses = scores.argmax(1).flatten::<1>(0, 1);
    guesses.equal(labels).int().sum().into_scalar::<i64>() as usize
}
