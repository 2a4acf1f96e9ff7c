//! `metrics.csv`: a row for each epoch.

use super::append_file::AppendFile;
use super::sink::{MetricSink, Record, SinkEntry};
use crate::meter::EpochRow;
use crate::progress::Progress;
use kolo_recipe::Error;

pub(super) const ENTRY: SinkEntry = SinkEntry {
    name: kolo_run_folder::METRICS,
    about: "a row per epoch: loss, accuracy, speed",
    open: |run| {
        let header = EpochRow::csv_header(run.unit, run.metrics, run.config.noise_scale);
        Some(Box::new(Metrics(AppendFile::new(run.folder?, ENTRY.name, header))))
    },
};

struct Metrics(AppendFile);

impl MetricSink for Metrics {
    fn record(&mut self, record: &Record<'_>) -> Result<(), Error> {
        match record {
            Record::Epoch(row) => self.0.add(&row.csv()),
            _ => Ok(()),
        }
    }

    fn align(&mut self, progress: &Progress) -> Result<(), Error> {
        // A header of other columns stays.
        let keep = |line: &str| epoch_of(line).is_none_or(|epoch| epoch <= progress.recorded_epoch());
        let kept = self.0.rewind(keep)?;
        let last = kept.lines().rev().find_map(epoch_of);
        for row in progress.epochs().iter().filter(|row| last.is_none_or(|last| row.epochs_done > last)) {
            self.0.add(&row.csv())?;
        }
        self.0.flush()
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.0.flush()
    }
}

/// Epoch of a row, from 1; `None` for a header.
fn epoch_of(line: &str) -> Option<f64> {
    line.split(',').next()?.parse().ok()
}
