//! Kolo's binding to [Burn](https://burn.dev): it trains any Burn module on any of Burn's devices, on many
//! workers as on one.
//!
//! It turns a module's parameters into flat memory and back, sees each gradient at the moment it is computed,
//! and has the layers that need more than their own shard ([`sync_batch_norm`]) or must not depend on who
//! computes them ([`Dropout`], [`Transformer`]). It never sees ranks, transports or optimizers: those are
//! below, in `kolo_ddp` (whose [`Ddp`](kolo_ddp::Ddp) drives it through
//! [`Binding`](kolo_ddp::binding::Binding)) and `kolo_comm`. Above stand training loops: `kolo_train`'s, or
//! one's own, as in this crate's example `two_workers`.

mod backend;
mod batch_norm;
mod device;
mod dropout;
mod error;
mod frozen;
mod hook;
mod loss;
mod model;
mod next_token;
mod tensor_list;
mod tensors;
#[cfg(test)]
mod tests;
mod transformer;
mod values;

pub use backend::ReadError;
pub use batch_norm::sync_batch_norm;
pub use burn_flex_nn::{Precision, linear, matmul, with_precision};
pub use device::check_precision;
pub use dropout::{Dropout, DropoutKey};
pub use error::Error;
pub use loss::Loss;
pub use model::BurnModel;
pub use next_token::{next_token_loss, next_token_loss_ignoring};
pub use transformer::{
    Activation, FeedForward, FeedForwardConfig, Norm, SelfAttention, SelfAttentionConfig, Transformer,
    TransformerBlock, TransformerConfig,
};
pub use values::{tied, with_values};

/// A Burn module of which every worker holds a replica: [`kolo_ddp::Ddp`] of this binding.
pub type Ddp<M> = kolo_ddp::Ddp<BurnModel<M>>;
