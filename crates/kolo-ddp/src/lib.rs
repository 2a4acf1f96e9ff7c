//! Data parallelism over flat memory: training steps that many workers share, with optimizers, checkpoints
//! and samplers. This crate knows no tensor library.
//!
//! A tensor library's [binding](binding::Binding) stands above: [`Ddp`] gets the model's tensors and
//! gradients from it. A program without a binding gives them to a [`Replica`] in a [`ShardPass`]. Groups and
//! collectives (`kolo_comm`) stand below. `step/mod.rs` describes the way of one gradient, there and back.

mod batch_growth;
pub mod binding;
mod buckets;
pub mod checkpoint;
mod config;
pub mod cross_shard;
mod ddp;
mod error;
mod exchange;
pub mod key;
mod last_step;
mod loss_scaling;
mod losses;
mod membership;
mod noise_scale;
mod order;
mod origin;
mod processor;
pub mod reduction;
mod replica;
mod restart;
mod same_model;
mod same_settings;
mod sampler;
mod seconds;
mod shard_loss;
mod shard_pass;
mod shard_sum;
mod shares;
mod staleness;
mod statistics;
mod step;
pub mod straggler;
pub mod sync;
pub mod transform;
mod tune;
pub mod verify;
mod wait_time;
mod warning;

/// Faults of a checkpoint's file.
pub use kolo_checkpoint::Error as CheckpointError;
/// Warnings about checkpoints; training continues.
pub use kolo_checkpoint::Warning as CheckpointWarning;
/// Optimizers, by name or a user's own.
pub use kolo_optim as optimizer;
pub use kolo_optim::{
    Element, Kind, Layout, MemoryOrder, ParamSpec, Span, SpanId, element, norm, rate, table,
};
pub use kolo_optim::{ParamGroup, Selector, TensorClass};

pub use batch_growth::BatchGrowth;
pub use buckets::{BLOCK, Bucket, BucketCaps, Slice, plan};
pub use config::Config;
pub use ddp::Ddp;
pub use error::Error;
pub use last_step::LastStep;
pub use loss_scaling::{LossScale, LossScaling};
pub use noise_scale::{BatchMeaning, NoiseScale};
pub use origin::Origin;
pub use processor::Processor;
pub use replica::{Change, Replica, StepReport};
pub use sampler::{Epoch, Sampler};
pub use shard_loss::ShardLoss;
pub use shard_pass::{Access, ShardPass};
pub use shares::{Assignment, apportion};
pub use staleness::Staleness;
pub use statistics::Statistics;
pub use step::BucketTiming;
pub use tune::{Trial, TunedSetting, Tuning};
pub use warning::Warning;
