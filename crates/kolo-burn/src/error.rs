//! What can go wrong in training a Burn model.

use burn::tensor::DType;

use crate::backend::ReadError;

/// An error of the binding, by kind.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A data-parallel step failed.
    #[error(transparent)]
    Ddp(#[from] kolo_ddp::Error),
    /// The model is on a device that records no gradients.
    #[error(
        "{device} records no gradients; build the model on a device with autodiff, as \
         `Device::flex().autodiff()`"
    )]
    NoAutodiff {
        /// The device, as Burn prints it.
        device: String,
    },
    /// The model is on one of Burn's backends that this build of Kolo does not see.
    #[error(
        "Kolo sees no gradients on {device}; build the model on `Device::flex().autodiff()`, or build \
         kolo-burn with the feature of the device: `cpu`, `cuda`, `rocm` or `wgpu`"
    )]
    Backend {
        /// The device, as Burn prints it.
        device: String,
    },
    /// A parameter holds another element type than `f32`.
    #[error("parameter `{parameter}` is {dtype:?}; Kolo trains f32")]
    DType {
        /// Its path in the model.
        parameter: String,
        /// What it holds.
        dtype: DType,
    },
    /// A gradient could not be read in the backward pass.
    #[error("a gradient cannot be read: {0}")]
    Gradient(#[source] ReadError),
    /// A parameter's values could not be read.
    #[error("parameter `{parameter}` cannot be read: {cause}")]
    Read {
        /// Its path in the model.
        parameter: String,
        /// What Burn says.
        cause: String,
    },
}

impl From<kolo_comm::Error> for Error {
    fn from(error: kolo_comm::Error) -> Self {
        Error::Ddp(error.into())
    }
}
