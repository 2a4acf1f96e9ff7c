//! Errors in training a candle model.

use candle_core::DType;

/// Error in training a candle model, carried by [`kolo_ddp::Error::Binding`] where a call of
/// [`Ddp`](crate::Ddp) returns it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum Error {
    /// A variable has another element type than `f32`.
    #[error(
        "parameter `{parameter}` is {}; Kolo trains f32, so build the model with `DType::F32`",
        dtype.as_str()
    )]
    DType { parameter: String, dtype: DType },
    /// A variable is not in the memory of the host.
    #[error(
        "parameter `{parameter}` is on {device}; Kolo trains candle models on the CPU: build it on \
         `Device::Cpu`"
    )]
    Device { parameter: String, device: String },
    /// No variable of the map is trained.
    #[error("the `VarMap` holds no parameter to train; build the model with the given `VarBuilder`")]
    NothingTrained,
    /// The freezing of parameters is refused.
    #[error(transparent)]
    Frozen(#[from] kolo_ddp::optimizer::GroupError),
    /// A pattern of [`Options::statistics`](crate::Options::statistics) names no variable.
    #[error("statistics {pattern}: no variable of the model has such a name")]
    NoStatistic { pattern: String },
    /// A loss reaches no trained parameter.
    #[error(
        "the loss does not depend on a trained parameter of this model; compute it by `Ddp::model`, without \
         `detach` and without an operation that has no backward pass (as `candle_nn::LayerNorm` on \
         contiguous input)"
    )]
    NoGradient,
    /// The parameters were to be divided among the ranks.
    #[error(
        "candle's tensors cannot gather their values at each use, so parameters are not divided; take \
         `Sharding::Gradients`, which divides the optimizer's state and gradients"
    )]
    Divided,
    /// The model could not be built.
    #[error("the model cannot be built: {}", sentence(.0))]
    Build(#[source] candle_core::Error),
    /// A forward pass of [`Trainer`](crate::Trainer) failed.
    #[error("the loss cannot be computed: {}", sentence(.0))]
    Forward(#[source] candle_core::Error),
    /// A backward pass failed.
    #[error("the backward pass failed: {}", sentence(.0))]
    Backward(#[source] candle_core::Error),
    /// A variable's values could not be read.
    #[error("parameter `{parameter}` cannot be read: {}", sentence(cause))]
    Read {
        parameter: String,
        #[source]
        cause: candle_core::Error,
    },
}

/// Returns an error of candle without the backtrace that it prints behind its first line.
fn sentence(error: &candle_core::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
