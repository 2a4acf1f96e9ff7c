//! Errors in training a Burn model.

use burn::tensor::DType;

use crate::backend::ReadError;

/// Error in training a Burn model, carried by [`kolo_ddp::Error::Binding`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum Error {
    /// The model is on a device that records no gradients.
    #[error(
        "{device} records no gradients; build the model on a device with autodiff, as \
         `Device::flex().autodiff()`"
    )]
    NoAutodiff { device: String },
    /// No parameter of the model is trained.
    #[error(
        "no parameter of the model requires a gradient, so there is nothing to train; build it on a device with \
         autodiff, as `Device::flex().autodiff()`, and freeze (`no_grad`) only a part of it"
    )]
    NothingTrained,
    /// The module means to train a parameter, but nothing records its gradient.
    #[error(
        "parameter `{parameter}` is on {device} and nothing records its gradient, so it would not be trained; build \
         it on a device with autodiff, as the other parameters, or freeze it with `no_grad`"
    )]
    Untracked { parameter: String, device: String },
    /// A parameter that is to be divided among the ranks is not what layers get.
    #[error(
        "parameter `{parameter}` has a reparameterization, so it cannot be gathered where it is used; freeze it, or take sharding `gradients` in place of `parameters`"
    )]
    Reparameterized { parameter: String },
    /// A forward pass changed a tensor that steps never change.
    #[error(
        "the forward pass has changed `{parameter}`, which is frozen or holds no floats and has to be the same on \
         all ranks; keep what a forward pass changes in a `RunningState` of floats"
    )]
    FrozenChanged { parameter: String },
    /// The model is on a Burn backend that this build of Kolo does not support.
    #[error(
        "Kolo sees no gradients on {device}; build the model on `Device::flex().autodiff()`, or build \
         kolo-burn with the feature of the device: `cpu`, `cuda`, `rocm` or `wgpu`"
    )]
    Backend { device: String },
    /// A parameter has an element type other than `f32`.
    #[error("parameter `{parameter}` is {dtype:?}; Kolo trains f32")]
    DType { parameter: String, dtype: DType },
    /// The device cannot compute in the requested type.
    #[error("{device} does not compute in {precision}; take f32, or another device")]
    Precision { device: String, precision: &'static str },
    /// A gradient could not be read in the backward pass.
    #[error("a gradient cannot be read: {0}")]
    Gradient(#[source] ReadError),
    /// A tensor of [`sync_batch_norm`](crate::sync_batch_norm) could not be read.
    #[error("batch normalization over the global batch: a tensor cannot be read: {0}")]
    BatchNorm(#[source] ReadError),
    /// A parameter's values could not be read.
    #[error("parameter `{parameter}` cannot be read: {cause}")]
    Read { parameter: String, cause: String },
}
