//! Data parallelism over flat memory: training steps that many workers share, with optimizers, checkpoints
//! and samplers. This crate knows no tensor library.
//!
//! A tensor library's [binding](binding::Binding) stands above: [`Ddp`] gets the model's tensors and
//! gradients from it. A program without a binding gives them to a [`Replica`] in a [`ShardPass`]. Groups and
//! collectives (`kolo_comm`) stand below. kolo-step describes the way of one gradient.

pub mod binding;
pub mod checkpoint;
mod checkpoint_entries;
pub mod cross_shard;
mod ddp;
mod replica;
mod restart;
mod sampler;
mod shard_pass;

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
pub use kolo_values::Loan;

pub use ddp::Ddp;
/// Buckets, reductions and gradient transforms.
pub use kolo_reduction::{
    BLOCK, Bucket, BucketCaps, Error, Origin, ShardLoss, Slice, plan, reduction, transform,
};
/// Samples of shards, and shards of ranks.
pub use kolo_sampler::{Assignment, BatchGrowth, Epoch, Sampler, SamplerError, apportion, key};
/// Results of steps, and settings that tuning chooses.
pub use kolo_step::{
    BatchMeaning, BucketTiming, IN_FLIGHT, LastStep, LossScale, LossScaling, NoiseScale, Trial, TunedSetting,
    Tuning,
};
/// Stragglers: ranks that delay the others.
pub use kolo_straggler as straggler;
/// Settings, reports and ways to synchronize.
pub use kolo_sync::{
    Change, Config, GradientTraffic, Sharding, Staleness, Statistics, StepReport, StepTimes, Warning,
    check_offload_folder, is_in_memory, sync, verify,
};
pub use replica::Replica;
pub use shard_pass::{Access, ShardPass};
