//! Kolo for Burn: gradients seen the moment they are ready, flat parameters, and layers that need the group.

mod backend;
mod batch_norm;
mod ddp;
mod dropout;
mod error;
mod hook;
#[cfg(test)]
mod residual_net;
mod shard_pass;
mod tensors;

pub use backend::ReadError;
pub use ddp::{Ddp, Loss};
pub use dropout::{Dropout, DropoutKey};
pub use error::Error;
pub use shard_pass::ShardPass;
