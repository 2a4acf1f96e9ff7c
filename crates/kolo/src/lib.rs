#![doc = include_str!("../README.md")]
//! You can also use each of the underlying crates alone: [`comm`] for collectives, [`ddp`] for data
//! parallelism over flat memory, [`data`] for batches, [`train`](mod@train) for whole runs, [`elastic`] and
//! [`launch`] for starting workers. [`main`] is the frame of a program.

mod entry;
pub mod prelude;

pub use entry::main;
pub use kolo_burn::{BurnModel, Ddp, Dropout, DropoutKey, Loss, sync_batch_norm};
pub use kolo_burn::{Precision, linear, matmul, with_precision};
pub use kolo_burn::{Transformer, TransformerConfig};
pub use kolo_burn::{
    linear_next_token_loss, linear_next_token_loss_ignoring, next_token_loss, next_token_loss_ignoring,
};
pub use kolo_burn_train as train;
pub use kolo_burn_train::image_tensors;
pub use kolo_comm as comm;
pub use kolo_comm::{Group, Op, Rank};
pub use kolo_data as data;
pub use kolo_ddp as ddp;
pub use kolo_ddp::cross_shard::CrossShardPass;
pub use kolo_ddp::optimizer::{self, Optimizer, Settings};
pub use kolo_ddp::rate::{Decay, Rate};
pub use kolo_ddp::table::Choice;
pub use kolo_ddp::transform::{self, GradientTransform};
pub use kolo_ddp::{BucketCaps, Config, Error, LossScaling, ParamGroup, Sampler, Statistics, StepReport};
pub use kolo_elastic as elastic;
pub use kolo_launch as launch;
pub use kolo_models as models;
pub use kolo_program::Failure;
pub use kolo_recipe as recipe;
