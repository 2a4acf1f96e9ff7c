//! Kolo's binding to [Burn](https://burn.dev): trains any Burn module on any Burn device, on many workers as
//! on one.
//!
//! The binding maps a module's parameters to flat memory and back, and sees each gradient as soon as it is
//! computed. It has the layers that need data of other shards ([`sync_batch_norm`]) or that must not depend
//! on the worker ([`Dropout`], [`Transformer`]). It never sees ranks, transports or optimizers. Those are
//! below, in `kolo_ddp` (whose [`Ddp`](kolo_ddp::Ddp) drives it through
//! [`Binding`](kolo_ddp::binding::Binding)) and `kolo_comm`. Above it are training loops: that of
//! `kolo_train` (with `kolo_burn_train`), or your own, as in this crate's example `two_workers`.

mod activation_checkpointing;
mod backend;
mod batch_norm;
mod device;
mod dropout;
mod error;
mod flat_tensor;
mod freeze;
mod frozen;
mod gather;
mod hook;
mod loss;
mod model;
mod next_token;
mod outline;
mod tensor_list;
mod tensors;
#[cfg(test)]
mod tests;
mod transformer;
mod values;

pub use activation_checkpointing::checkpointed;
pub use backend::ReadError;
pub use batch_norm::sync_batch_norm;
pub use burn_flex_nn::{Precision, linear, matmul, with_precision};
pub use device::check_precision;
pub use dropout::{Dropout, DropoutKey};
pub use error::Error;
pub use freeze::freeze;
pub use loss::Loss;
pub use model::BurnModel;
pub use next_token::{
    linear_next_token_loss, linear_next_token_loss_ignoring, next_token_loss, next_token_loss_ignoring,
};
pub use transformer::{
    Activation, FeedForward, FeedForwardConfig, Norm, SelfAttention, SelfAttentionConfig, Transformer,
    TransformerBlock, TransformerConfig,
};
pub use values::{lazy_param, tied, with_values};

/// [`kolo_ddp::Ddp`] with this binding: a Burn module with a replica on every worker.
///
/// ```
/// use burn::nn::{Linear, LinearConfig};
/// use burn::tensor::{Device, Distribution, Tensor};
/// use kolo_burn::{Ddp, Loss};
/// use kolo_comm::Group;
/// use kolo_ddp::{Config, optimizer};
///
/// let device = Device::flex().autodiff();
/// let model: Linear = LinearConfig::new(2, 1).init(&device);
/// // One worker alone; `Group::from_env` takes the place that a launcher gives.
/// let config = Config { shards: Some(2), ..Config::default() };
/// let sgd = optimizer::named("sgd", &optimizer::Settings::default()).unwrap();
/// let mut ddp = Ddp::new(Group::alone(), model, &config, sgd)?;
/// for _shard in ddp.shards() {
///     let inputs = Tensor::<2>::random([8, 2], Distribution::Default, &device);
///     let outputs = ddp.model().forward(inputs);
///     ddp.backward(Loss::sum(outputs.powi_scalar(2).sum(), 8))?;
/// }
/// assert!(ddp.step(0.1)?.loss.is_finite());
/// # Ok::<(), kolo_ddp::Error>(())
/// ```
pub type Ddp<M> = kolo_ddp::Ddp<BurnModel<M>>;
