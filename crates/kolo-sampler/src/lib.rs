//! Samples and shards: which samples each shard of a step has, and which rank computes it.
//!
//! A [`Sampler`] divides a data set among the shards of every step; [`apportion`] divides the shards among
//! the ranks. A [`Key`](key::Key) draws random numbers. All are functions of their arguments alone, so that
//! every worker computes the same. This crate knows no data set and no gradient; kolo-data, which prepares
//! batches, and kolo-ddp, which trains, depend on it.

mod batch_growth;
pub mod key;
mod order;
mod sampler;
mod shares;

pub use batch_growth::BatchGrowth;
pub use sampler::{Epoch, Sampler, SamplerError};
pub use shares::{Assignment, apportion, equal, of_workers};
