//! Data parallelism over flat memory. Knows no tensor library.
//!
//! The way of one gradient: a binding calls [`Reducer::ready`] when the backward pass has computed it; it is added into
//! its [`Span`] of a [`Bucket`]; a full bucket moves to the communication thread and is summed over all shards in the
//! order of the tree; it comes back while later ones are on the wire, even while the next forward pass has begun, and the
//! [`Optimizer`](optimizer::Optimizer) steps its range. [`Replica`] holds all of it together for one worker.

mod agree;
mod buckets;
pub mod checkpoint;
mod error;
pub mod key;
mod layout;
pub mod lockstep;
mod losses;
pub mod norm;
pub mod optimizer;
pub mod rate;
mod reducer;
mod replica;
mod sampler;
mod shard_sum;
mod shares;
mod statistics;
pub mod straggler;
pub mod table;
pub mod transform;
pub mod verify;

pub use buckets::{Bucket, BucketCaps, Slice, plan};
pub use error::Error;
pub use layout::{Kind, Layout, ParamSpec, Span, SpanId};
pub use reducer::{BucketTiming, Reducer, Totals};
pub use replica::{Change, Config, LastStep, Replica, StepReport};
pub use sampler::{Epoch, Sampler};
pub use shares::apportion;
pub use statistics::Statistics;
