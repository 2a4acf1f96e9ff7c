//! A whole training run as a library: from a recipe to a run folder.
//!
//! A [`Trainer`] takes a model, its loss, a [`DataSet`](kolo_data::DataSet) and a recipe, and trains on all
//! workers of the job. This crate passes a run's events to [`SINKS`], writes checkpoints to a [`RunFolder`],
//! and continues after a worker's death or from a checkpoint. It never starts a process and never prints an
//! error: `kolo`, the command line, does both. It knows neither a model nor a tensor library: a [`Framework`]
//! brings both, and `kolo-burn-train`, above this crate, is that of Burn. Below it are `kolo-metrics` (figures
//! and sinks), `kolo-recipe` (the recipe and the folder), `kolo-data` (batches) and `kolo-ddp` (the step).
//!
//! | module | contents |
//! |---|---|
//! | `job` | a run, and a worker's membership in it |
//! | `trainer`, `task` | the user's own code: model, loss, data, metrics |
//! | `own_parts` | the user's own optimizer, reduction, schedule and transforms |
//! | `range_test` | the learning-rate range test |
//! | `framework` | the interface to a tensor library |
//! | `mixing` | mixup and CutMix |
//! | `start`, `worker`, `epoch`, `epoch_end`, `outcome` | the start and the loop of one worker, and its interruptions |
//! | `evaluate` | scores of the model |
//! | `flow`, `agreement` | answers of callbacks, on which all workers agree |
//! | `catch_up`, `early_end` | the continuation or the end after other workers died |
//! | `sampling` | the choice and order of samples, for workers and checkpoints to compare |
//! | `run_writer`, `checkpoints`, `summarize` | the files of rank 0, and the figures at the end |
//! | `lineage` | the exclusive right to write them |

mod agreement;
mod catch_up;
mod checkpoints;
mod due;
mod early_end;
mod epoch;
mod epoch_end;
mod error;
mod evaluate;
mod flow;
mod framework;
mod job;
mod lineage;
mod mixing;
mod outcome;
mod own_parts;
mod patience;
mod range_test;
mod resume_check;
mod run_writer;
mod sampling;
mod saving;
mod signals;
mod slowdown;
mod start;
mod summarize;
mod suspects;
mod task;
mod timeline;
mod trained;
mod trainer;
mod warn;
mod worker;

pub use error::{CHECKPOINT_LOST, Error, SampleChange};
pub use flow::{Answer, Flow};
pub use framework::{Framework, Pass};
pub use job::{Job, Membership, TUNED_STREAMS, replaces_another};
pub use kolo_metrics::{
    Auc, Better, Classification, Confusion, EpochRow, Error as RecordError, LOG_FORMAT, LiveMetrics,
    LogFormat, Mean, Meter, Metric, MetricSink, MetricsAddress, NoiseSummary, Perplexity, Progress, Quantile,
    Record, SINKS, SampleCounts, Score, Scores, SinkContext, SinkEntry, Speed, StalenessSummary, StepRow,
    Summary, Tally, best_class, softmax, top_k,
};
pub use kolo_recipe::{
    BatchNormalization, LargeBatch, LearningRateSchedule, OptimizerChoice, OwnParts, Plan, PrecisionConfig,
    RateConfig, Recipe, RunFolder, Stem, TransformChoices,
};
pub use own_parts::SchedulePoint;
pub use range_test::{RangeCurve, RangePoint, RangeTest};
pub use resume_check::{changed_tests, check_resume};
pub use signals::survive_large_files;
pub use slowdown::Slowdown;
pub use summarize::peak_bytes;
pub use task::check_metric;
pub use trained::Trained;
pub use trainer::{RUN_FOLDER, Trainer};
