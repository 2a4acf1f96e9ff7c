//! A whole training run as a library: from a configuration to a run folder.
//!
//! A run is a [`Model`] and a [`DataSet`](kolo_data::DataSet), trained by every worker that takes part:
//! [`train`]. This crate decides what a run is ([`TrainConfig`]), writes down what happens in it ([`SINKS`])
//! and checkpoints, in a [`RunFolder`], and goes on after a worker's death or from a checkpoint. It never
//! starts a process and never prints an error: `kolo`, the command line above it, does both. Below it are
//! `kolo-data` (batches), `kolo-burn` (a model on its tensor library) and `kolo-ddp` (the step).
//!
//! | module | idea |
//! |---|---|
//! | `config`, `job` | what a run is; how a worker takes part in it |
//! | `model`, `models`, `stepper` | what can be trained, and what is known by name |
//! | `worker`, `epoch`, `outcome` | the loop of one worker, and what interrupts it |
//! | `catch_up`, `early_end` | how it goes on, or ends, after others have died |
//! | `progress`, `sync_progress` | how far the run has come, as every worker knows it |
//! | `run_writer`, `sinks`, `checkpoints`, `run_folder` | what rank 0 writes down |

mod catch_up;
mod checkpoints;
mod config;
mod early_end;
mod epoch;
mod error;
mod evaluate;
mod job;
mod meter;
mod model;
pub mod models;
mod outcome;
mod progress;
mod run_folder;
mod run_writer;
mod signals;
mod sinks;
mod slowdown;
mod stepper;
mod summary;
mod sync_progress;
mod tensors;
mod worker;

pub use config::{
    BatchNormalisation, LearningRateSchedule, OptimizerChoice, RateConfig, TrainConfig, TransformChoices,
    WORKERS, check_bucket_cap,
};
pub use error::Error;
pub use job::{Job, Membership};
pub use meter::{EpochRow, Meter, StepRow, percentile};
pub use model::{Blueprint, Model, TrainingContext, count_correct, cross_entropy};
pub use progress::Progress;
pub use run_folder::RunFolder;
pub use sinks::{GenerationRow, MetricSink, Record, SINKS, SinkContext, SinkEntry, unix_seconds};
pub use slowdown::Slowdown;
pub use stepper::Stepper;
pub use summary::Summary;
pub use tensors::image_tensors;
pub use worker::train;
