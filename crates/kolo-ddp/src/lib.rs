//! Data parallelism over flat memory: training steps that many workers share, with optimizers, checkpoints
//! and samplers. This crate knows no tensor library.
//!
//! A tensor library's [binding](binding::Binding) stands above: [`Ddp`] gets the model's tensors and
//! gradients from it. A program without a binding gives them to a [`Replica`] in a [`ShardPass`]. Groups and
//! collectives (`kolo_comm`) stand below. `step/mod.rs` describes the way of one gradient, there and back.

pub mod binding;
pub mod checkpoint;
mod config;
pub mod cross_shard;
mod ddp;
mod processor;
mod replica;
mod restart;
mod same_model;
mod same_settings;
mod sampler;
mod shard_pass;
mod staleness;
mod statistics;
pub mod sync;
pub mod verify;
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

pub use config::Config;
pub use ddp::Ddp;
/// Buckets, reductions and gradient transforms.
pub use kolo_reduction::{
    BLOCK, Bucket, BucketCaps, Error, Origin, ShardLoss, Slice, plan, reduction, transform,
};
/// Samples of shards, and shards of ranks.
pub use kolo_sampler::{Assignment, BatchGrowth, Epoch, Sampler, SamplerError, apportion, key};
/// Results of steps, and settings that tuning chooses.
pub use kolo_step::{
    BatchMeaning, BucketTiming, LastStep, LossScale, LossScaling, NoiseScale, Trial, TunedSetting, Tuning,
};
/// Stragglers: ranks that delay the others.
pub use kolo_straggler as straggler;
pub use processor::Processor;
pub use replica::{Change, Replica, StepReport};
pub use shard_pass::{Access, ShardPass};
pub use staleness::Staleness;
pub use statistics::Statistics;
pub use warning::Warning;
