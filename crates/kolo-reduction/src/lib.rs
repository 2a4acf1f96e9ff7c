//! Reductions of gradients: from the contributions of all shards to what the optimizer sees.
//!
//! [`plan`] divides the model into buckets. A [`Reduction`](reduction::Reduction) of the table
//! [`REDUCTIONS`](reduction::REDUCTIONS) combines the contributions to a bucket, and the
//! [transforms](transform) look at the result. kolo-step, above this crate, calls them in the course of a
//! step. The [`Error`] is that of all crates of data-parallel training.

mod buckets;
mod error;
mod origin;
mod owners;
pub mod reduction;
mod shard_loss;
mod shard_sum;
pub mod state;
pub mod transform;

pub use buckets::{BLOCK, Bucket, BucketCaps, Slice, plan, plan_sliced, reversed, trained};
pub use error::{BindingError, Error, alike, ranks_of};
pub use origin::Origin;
pub use owners::{Owners, blocks, slices};
pub use shard_loss::ShardLoss;
pub use shard_sum::ShardSum;
