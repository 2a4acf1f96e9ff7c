//! Kolo's binding to [candle](https://github.com/huggingface/candle): trains a candle model on many workers
//! as on one.
//!
//! The binding maps the variables of a `VarMap` to flat memory and back, and sees each gradient as soon as
//! the backward pass has computed it. Ranks, reductions, optimizers, checkpoints and recovery are those of
//! `kolo_ddp`, whose [`Ddp`](kolo_ddp::Ddp) drives it through [`Binding`](kolo_ddp::binding::Binding).
//! [`Trainer`] is the trainer of whole runs.
//!
//! Limits of candle, and their consequences:
//!
//! - Its tensors cannot wait for their values. So the backward pass overlaps with the reduction of gradients,
//!   and the next forward pass begins when all updates have been made.
//! - Its random numbers on the CPU cannot be seeded. Initial values are drawn by [`Options::seed`], and
//!   [`dropout`] takes the place of `candle_nn::Dropout`.
//! - Some of candle-nn's operations have no backward pass, such as `LayerNorm` on contiguous input,
//!   `ops::softmax_last_dim` and `ops::rms_norm`. Parameters before them get no gradient, without an error
//!   from candle. Kolo then refuses the loss, or warns of parameters that no loss uses. `ops::softmax`,
//!   `ops::layer_norm_slow` and `ops::rms_norm_slow` have one.

mod backends;
mod dropout;
mod error;
mod framework;
mod hook;
mod images;
mod initial;
mod loss;
mod memory;
mod model;
mod options;
mod variables;

pub use dropout::dropout;
pub use error::Error;
pub use framework::{Candle, Trainer};
pub use images::{accuracy, classification, cross_entropy, dropout_key, image_tensors};
pub use loss::Loss;
pub use model::CandleModel;
pub use options::Options;

/// [`kolo_ddp::Ddp`] with this binding: a candle model with a replica on every worker.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use candle_nn::{Module, VarMap};
/// use kolo_candle::{CandleModel, Ddp, Loss};
/// use kolo_comm::Group;
/// use kolo_ddp::{Config, optimizer};
///
/// let vars = VarMap::new();
/// let model = CandleModel::build(&vars, |builder| candle_nn::linear(2, 1, builder))?;
/// // One worker alone; `Group::from_env` takes the place that a launcher gives.
/// let config = Config { shards: Some(2), ..Config::default() };
/// let sgd = optimizer::named("sgd", &optimizer::Settings::default()).unwrap();
/// let mut ddp = Ddp::new(Group::alone(), model, &config, sgd)?;
/// for _shard in ddp.shards() {
///     let inputs = Tensor::rand(-1f32, 1.0, (8, 2), &Device::Cpu)?;
///     let outputs = ddp.model().forward(&inputs)?;
///     ddp.backward(Loss::sum(outputs.sqr()?.sum_all()?, 8)?)?;
/// }
/// assert!(ddp.step(0.1)?.loss.is_finite());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Ddp<M> = kolo_ddp::Ddp<CandleModel<M>>;
