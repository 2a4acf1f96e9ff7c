//! Whole training runs of Burn models: [`kolo_train`] with Burn as its tensor library.
//!
//! [`Trainer`] is the trainer of any Burn module. Everything of `kolo_train` is here under the same name, so
//! that a program needs one crate. The binding itself is in `kolo-burn`, below; this crate adds what a run
//! needs besides: the context of a loss, the usual losses of a classifier, batches as tensors, the type in
//! which a run computes, and files of weights ([`weights`]) with which it may begin.

mod context;
mod device;
mod framework;
mod precision;
mod tensors;

pub use context::{TrainingContext, accuracy, classification, confusion, count_correct, cross_entropy};
pub use device::device;
pub use framework::Burn;
pub use kolo_train::*;
pub use kolo_weights as weights;
pub use precision::precision;
pub use tensors::image_tensors;

/// Trainer of a Burn module `M` on a data set `D`.
///
/// Own data, with an optimizer, a schedule and a callback of your own:
///
/// ```no_run
/// use std::sync::Arc;
///
/// use burn::nn::{Linear, LinearConfig};
/// use burn::tensor::{Device, Tensor, TensorData};
/// use kolo_burn_train::{EpochRow, Flow, Metric, Recipe, Trainer, accuracy, cross_entropy, image_tensors};
/// use kolo_ddp::optimizer::Lion;
///
/// let device = Device::flex().autodiff();
/// let model: Linear = LinearConfig::new(28 * 28, 10).init(&device);
/// let recipe = Recipe { epochs: 5, shards: 4, batch_size: 32, ..Recipe::default() };
/// let data = kolo_data::open("fashion-mnist-small")?;
/// let trained = Trainer::new(recipe, data, |model: &Linear, batch, context| {
///     let (images, labels) = image_tensors(batch, context.device);
///     cross_entropy(model.forward(images.flatten(1, 3)), labels)
/// })
/// .evaluate([Metric::ACCURACY], |model, batch, device| {
///     let (images, labels) = image_tensors(batch, device);
///     [accuracy(model.forward(images.flatten(1, 3)), labels)]
/// })
/// .optimizer(Lion::default().build()?)
/// .schedule(|point| 1e-3 * (1.0 - point.progress))
/// .on_epoch(|row: &EpochRow, _model| match row.scores.get("accuracy") {
///     Some(accuracy) if accuracy > 0.9 => Flow::Stop,
///     _ => Flow::Continue,
/// })
/// .run_folder("runs/linear")
/// .train(model)?;
/// println!("{:?}", trained.summary);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Trainer<M, D> = kolo_train::Trainer<Burn, M, D>;
