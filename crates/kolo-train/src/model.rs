//! What a loss is given besides the samples, and the usual losses of a classifier.

use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::{Device, Int, Tensor};
use kolo_burn::{DropoutKey, Loss};
use kolo_ddp::cross_shard::CrossShardPass;

use crate::metric::Mean;

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

/// The share of samples that have their highest score at their label, for
/// [`Metric::ACCURACY`](crate::Metric::ACCURACY). Shapes as in [`cross_entropy`].
pub fn accuracy(scores: Tensor<2>, labels: Tensor<1, Int>) -> Mean {
    let count = labels.dims()[0];
    Mean::share(count_correct(scores, labels), count)
}

/// How many samples have their highest score at their label. Shapes as in [`cross_entropy`].
pub fn count_correct(scores: Tensor<2>, labels: Tensor<1, Int>) -> usize {
    let guesses = scores.argmax(1).flatten::<1>(0, 1);
    guesses.equal(labels).int().sum().into_scalar::<i64>() as usize
}
