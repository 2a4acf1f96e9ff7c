//! The records of a run: each sink writes one file, or shows a live view, and takes the same records.
//!
//! Rank 0 passes every record to all sinks of the run. A sink that cannot write returns an error and is
//! called again later: a full disk does not end a training.

mod append_file;
mod buckets;
mod changes;
mod console;
mod dashboard;
mod generations;
mod json_log;
mod live;
mod metrics;
mod pace;
mod prometheus;
mod ranks;
mod sink;
mod steps;
mod summary_file;
mod tensorboard;
mod terminal;
mod tuning;

pub use live::{LOG_FORMAT, LiveMetrics, LogFormat, MetricsAddress};
pub use sink::{MetricSink, Record, SinkContext, SinkEntry};

/// All sinks. The summary is the last one: a run with a summary is complete.
pub static SINKS: &[SinkEntry] = &[
    steps::ENTRY,
    metrics::ENTRY,
    buckets::ENTRY,
    ranks::ENTRY,
    generations::ENTRY,
    changes::ENTRY,
    tuning::ENTRY,
    tensorboard::ENTRY,
    prometheus::ENTRY,
    dashboard::ENTRY,
    json_log::ENTRY,
    terminal::ENTRY,
    summary_file::ENTRY,
];

#[cfg(test)]
mod tests;
