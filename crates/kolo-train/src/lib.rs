//! A whole training run as a library: from a recipe to a run folder.
//!
//! A [`Trainer`] takes a model, its loss, a [`DataSet`](kolo_data::DataSet) and a recipe, and trains on all
//! workers of the job. This crate records a run's events ([`SINKS`]) and checkpoints in a [`RunFolder`], and
//! continues after a worker's death or from a checkpoint. It never starts a process and never prints an
//! error: `kolo`, the command line, does both. It knows neither a model nor a tensor library: a [`Framework`]
//! brings both, and `kolo-burn-train`, above this crate, is that of Burn. Below it are `kolo-recipe` (the
//! recipe and the folder), `kolo-data` (batches) and `kolo-ddp` (the step).
//!
//! | module | contents |
//! |---|---|
//! | `job` | a run, and a worker's membership in it |
//! | `trainer`, `task`, `metric`, `tally` | the user's own code: model, loss, data, metrics |
//! | `own_parts` | the user's own optimizer, reduction, schedule and transforms |
//! | `classification`, `ranking` | counts of classes; figures of the order of all samples |
//! | `range_test` | the learning-rate range test |
//! | `framework` | the interface to a tensor library |
//! | `mixing` | mixup and CutMix |
//! | `names` | valid names of metrics |
//! | `worker`, `epoch`, `epoch_end`, `outcome` | the loop of one worker, and its interruptions |
//! | `calendar`, `evaluate`, `evaluations` | events due after a step, and conclusions from scores |
//! | `flow`, `agreement` | answers of callbacks, on which all workers agree |
//! | `catch_up`, `early_end` | the continuation or the end after other workers died |
//! | `sampling` | the choice and order of samples, for workers and checkpoints to compare |
//! | `progress`, `sync_progress` | the run's progress, as every worker knows it |
//! | `run_writer`, `sinks`, `checkpoints` | the files of rank 0 |
//! | `lineage` | the exclusive right to write them |

mod agreement;
mod calendar;
mod catch_up;
mod checkpoints;
mod classification;
mod early_end;
mod epoch;
mod epoch_end;
mod error;
mod evaluate;
mod evaluations;
mod flow;
mod framework;
mod job;
mod lineage;
mod meter;
mod metric;
mod mixing;
mod names;
mod noise_summary;
mod outcome;
mod own_parts;
mod patience;
mod progress;
mod range_test;
mod ranking;
mod resume_check;
mod run_writer;
mod samples;
mod sampling;
mod signals;
mod sinks;
mod slowdown;
mod staleness_summary;
mod summary;
mod suspects;
mod sync_progress;
mod tally;
mod task;
mod timeline;
mod trained;
mod trainer;
mod warn;
mod worker;

pub use classification::{Classification, Confusion, softmax};
pub use error::Error;
pub use flow::{Answer, Flow};
pub use framework::{Framework, Pass};
pub use job::{Job, Membership, TUNED_STREAMS, replaces_another};
pub use kolo_recipe::{
    BatchNormalization, LargeBatch, LearningRateSchedule, OptimizerChoice, OwnParts, Plan, PrecisionConfig,
    RateConfig, Recipe, RunFolder, Stem, TransformChoices,
};
pub use meter::{EpochRow, Meter, StepRow};
pub use metric::{Better, Mean, Metric, Score, Scores};
pub use noise_summary::NoiseSummary;
pub use own_parts::SchedulePoint;
pub use progress::Progress;
pub use range_test::{RangeCurve, RangePoint, RangeTest};
pub use ranking::{Auc, Quantile};
pub use resume_check::check_resume;
pub use signals::survive_large_files;
pub use sinks::{
    LOG_FORMAT, LiveMetrics, LogFormat, MetricSink, MetricsAddress, Record, SINKS, SinkContext, SinkEntry,
};
pub use slowdown::Slowdown;
pub use staleness_summary::StalenessSummary;
pub use summary::{SampleCounts, Speed, Summary, peak_bytes};
pub use tally::{Perplexity, Tally, top_k};
pub use trained::Trained;
pub use trainer::{RUN_FOLDER, Trainer};
