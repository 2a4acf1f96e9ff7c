//! A whole training run as a library: from a configuration to a run folder.
//!
//! A [`Trainer`] takes a model, its loss, a [`DataSet`](kolo_data::DataSet) and a recipe, and trains on all
//! workers of the job. This crate defines a run ([`Recipe`]), records its events ([`SINKS`]) and checkpoints
//! in a [`RunFolder`], and continues after a worker's death or from a checkpoint. It never starts a process
//! and never prints an error: `kolo`, the command line above it, does both. Below it are `kolo-data`
//! (batches), `kolo-burn` (a model on its tensor library) and `kolo-ddp` (the step).
//!
//! | module | contents |
//! |---|---|
//! | `config`, `job` | a run's recipe; a worker's membership in it |
//! | `plan` | steps and learning rates of a recipe on a data set |
//! | `trainer`, `task`, `metric` | the user's own code: model, loss, data, metrics |
//! | `names` | valid names of metrics |
//! | `models`, `stepper` | models by name, and single steps of them |
//! | `worker`, `epoch`, `epoch_end`, `outcome` | the loop of one worker, and its interruptions |
//! | `calendar`, `evaluate`, `evaluations` | events due after a step, and conclusions from scores |
//! | `catch_up`, `early_end` | the continuation or the end after other workers died |
//! | `sampling` | the choice and order of samples, for workers and checkpoints to compare |
//! | `progress`, `sync_progress` | the run's progress, as every worker knows it |
//! | `run_writer`, `sinks`, `checkpoints`, `run_folder` | the files of rank 0 |
//! | `run_claim`, `lineage` | the exclusive right to write them |
//! | `weights` | files of weights that other programs load, and runs that begin with one |
//! | `inference` | accuracy and latency of trained weights |

mod calendar;
mod catch_up;
mod checkpoints;
mod config;
mod early_end;
mod epoch;
mod epoch_end;
mod error;
mod evaluate;
mod evaluations;
pub mod inference;
mod job;
mod lineage;
mod meter;
mod metric;
mod model;
pub mod models;
mod names;
mod noise_summary;
mod outcome;
mod patience;
mod plan;
mod progress;
mod run_claim;
mod run_folder;
mod run_writer;
mod samples;
mod sampling;
mod shell;
mod signals;
mod sinks;
mod slowdown;
mod staleness_summary;
mod stepper;
mod summary;
mod suspects;
mod sync_progress;
mod task;
mod tensors;
mod timeline;
mod trained;
mod trainer;
mod warn;
pub mod weights;
mod worker;

pub use config::{
    BatchNormalisation, LargeBatch, LearningRateSchedule, OptimizerChoice, PrecisionConfig, RateConfig,
    Recipe, TransformChoices, WORKERS, check_bucket_cap,
};
pub use error::Error;
pub use job::{Job, Membership, TUNED_STREAMS, replaces_another};
pub use meter::{EpochRow, Meter, StepRow};
pub use metric::{Better, Mean, Metric, Score, Scores};
pub use model::{TrainingContext, accuracy, count_correct, cross_entropy};
pub use noise_summary::NoiseSummary;
pub use plan::Plan;
pub use progress::Progress;
pub use run_folder::RunFolder;
pub use shell::shell_quoted;
pub use signals::survive_large_files;
pub use sinks::{
    LOG_FORMAT, LiveMetrics, LogFormat, MetricSink, MetricsAddress, Record, SINKS, SinkContext, SinkEntry,
};
pub use slowdown::Slowdown;
pub use staleness_summary::StalenessSummary;
pub use stepper::Stepper;
pub use summary::{Speed, Summary, peak_bytes};
pub use tensors::image_tensors;
pub use trained::Trained;
pub use trainer::{RUN_FOLDER, Trainer};
