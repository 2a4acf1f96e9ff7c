//! What a training run measures, and the sinks that write or show it.
//!
//! Rank 0 passes each event of a run as a [`Record`] to its [`SINKS`]: files of the run folder, TensorBoard,
//! Prometheus, the dashboard, the terminal. [`Progress`] is known to every worker, so that any of them can
//! continue to write as rank 0. `kolo-train`, above this crate, has the loop that measures; `kolo-run-folder`,
//! below it, has the rows as they are written and read. This crate trains nothing.
//!
//! | module | contents |
//! |---|---|
//! | `metric`, `tally`, `names` | metrics of a model, what one batch says of them, valid names |
//! | `classification`, `ranking` | counts of classes; figures of the order of all samples |
//! | `calendar` | events due after a step |
//! | `meter`, `samples` | rows of steps and epochs, sums and percentiles over them |
//! | `progress`, `summed_steps`, `waiting_steps`, `evaluations`, `sync_progress` | the run's progress |
//! | `summary`, `noise_summary`, `staleness_summary` | the figures of a whole run |
//! | `sinks` | the files and live views |

mod calendar;
mod classification;
mod evaluations;
mod meter;
mod metric;
mod names;
mod noise_summary;
mod progress;
mod ranking;
mod samples;
mod sinks;
mod staleness_summary;
mod summary;
mod summed_steps;
mod sync_progress;
mod tally;
mod waiting_steps;

pub use calendar::{Calendar, Due};
pub use classification::{Classification, Confusion, best_class, softmax};
pub use evaluations::{Best, Evaluations};
pub use kolo_recipe::Error;
pub use meter::{EpochRow, Meter, StepRow};
pub use metric::{Better, Mean, Metric, Score, Scores};
pub use names::check_names;
pub use noise_summary::NoiseSummary;
pub use progress::Progress;
pub use ranking::{Auc, Quantile};
pub use sinks::{
    LOG_FORMAT, LiveMetrics, LogFormat, MetricSink, MetricsAddress, Record, SINKS, SinkContext, SinkEntry,
};
pub use staleness_summary::StalenessSummary;
pub use summary::{BestScore, SampleCounts, Speed, Summary};
pub use tally::{Perplexity, Tally, top_k};
