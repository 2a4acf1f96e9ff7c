//! `metrics.csv`: a row for each epoch.

use std::ops::RangeInclusive;

use super::append_file::{AppendFile, report_lost};
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
        let mut last = kept.lines().rev().find_map(epoch_of);
        for row in progress.epochs().iter().filter(|row| last.is_none_or(|last| row.epochs_done > last)) {
            self.0.add(&row.csv())?;
        }
        last = progress.epochs().last().map(|row| row.epochs_done).into_iter().chain(last).reduce(f64::max);
        report_lost(ENTRY.name, "epoch", lost(last, progress.recorded_epoch()));
        self.0.flush()
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.0.flush()
    }
}

/// Whole epochs up to the `recorded` one that have no row, because the `last` row is of an earlier one. The
/// parts of epochs have rows only in runs that evaluate there (`--eval-steps`), which may have begun later.
fn lost(last: Option<f64>, recorded: f64) -> RangeInclusive<u64> {
    last.map_or(1, |last| last as u64 + 1)..=recorded as u64
}

/// Epoch of a row, from 1; `None` for a header.
fn epoch_of(line: &str) -> Option<f64> {
    line.split(',').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_epochs_after_the_last_row_are_lost() {
        for (last, recorded, expected) in [
            (None, 0.0, None),
            (None, 0.75, None),
            (None, 1.0, Some(1..=1)),
            (None, 3.5, Some(1..=3)),
            (Some(0.5), 2.0, Some(1..=2)),
            (Some(1.0), 3.0, Some(2..=3)),
            (Some(2.5), 3.25, Some(3..=3)),
            (Some(3.0), 3.9, None),
            (Some(3.0), 3.0, None),
        ] {
            let found = Some(lost(last, recorded)).filter(|lost| !lost.is_empty());
            assert_eq!(found, expected, "{last:?} {recorded}");
        }
    }
}
