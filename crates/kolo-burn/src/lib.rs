//! Kolo for Burn: gradients seen the moment they are ready, flat parameters, and the models and data of `kolo
//! train`.

mod backend;
mod batch_norm;
pub mod data;
mod ddp;
mod dropout;
mod error;
mod hook;
pub mod models;
mod shard_pass;
mod tensors;

pub use backend::ReadError;
pub use ddp::{Ddp, Loss};
pub use dropout::{Dropout, DropoutKey};
pub use error::Error;
pub use shard_pass::ShardPass;
