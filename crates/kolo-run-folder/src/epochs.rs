//! `metrics.csv`: one row per epoch. The metrics determine its columns, so readers find them by name
//! ([`NumberTable`]).

use std::fmt::Display;
use std::path::Path;

use crate::csv::{self, NumberTable};
use crate::error::Error;

/// Name of the file.
pub const METRICS: &str = "metrics.csv";

/// A row of `metrics.csv`, for writing.
#[derive(Clone, Debug, PartialEq)]
pub struct EpochRow<'a> {
    /// Number of the epoch, from 1. In a run that evaluates within epochs: epochs done, with the share of the
    /// one that runs.
    pub epoch: f64,
    /// Mean over the last 20 steps of the epoch.
    pub seconds_per_step: f64,
    /// Samples (or other units that the loss counts) of all workers per second of step time.
    pub samples_per_second: f64,
    /// Share of the steps' time in which at least one bucket was being reduced, at most 1.
    pub comm_fraction: f64,
    /// Share of the steps' time in which the training thread waited for communication, at most 1.
    pub exposed_comm_fraction: f64,
    /// Mean loss over the samples of the epoch.
    pub train_loss: f64,
    /// Names and values of the metrics after the epoch.
    pub scores: Vec<(&'a str, f64)>,
    /// Learning rate of the last step.
    pub learning_rate: f64,
    /// Noise scale after the last step; `None` if it is not measured, `Some(None)` as long as it is unknown.
    pub noise_scale: Option<Option<f64>>,
}

impl EpochRow<'_> {
    /// Returns the first line of `metrics.csv` with its line break. The loss counts `unit`, `metrics` are
    /// the columns of its metrics, and `noise_scale` is true if the noise scale is measured.
    pub fn csv_header(unit: &str, metrics: impl IntoIterator<Item: Display>, noise_scale: bool) -> String {
        let tests: String =
            metrics.into_iter().map(|name| format!("{},", csv::cell(&name.to_string()))).collect();
        let speed = format!("{unit}_per_second");
        let noise_scale = if noise_scale { ",noise_scale" } else { "" };
        format!(
            "epoch,seconds_per_step,{},comm_fraction,exposed_comm_fraction,train_loss,{tests}learning_rate{noise_scale}\n",
            csv::cell(&speed)
        )
    }

    /// Returns the row without a line break. Each number has enough digits to be read back exactly.
    pub fn csv(&self) -> String {
        let tests: String = self.scores.iter().map(|(_, value)| format!("{value:?},")).collect();
        let number = |noise: Option<f64>| noise.map_or(",".into(), |samples| format!(",{samples:?}"));
        let noise_scale: String = self.noise_scale.map(number).unwrap_or_default();
        format!(
            "{},{:?},{:?},{:?},{:?},{:?},{tests}{:?}{noise_scale}",
            self.epoch,
            self.seconds_per_step,
            self.samples_per_second,
            self.comm_fraction,
            self.exposed_comm_fraction,
            self.train_loss,
            self.learning_rate
        )
    }
}

/// Reads the epochs of a run, and returns a remark on an incomplete file.
pub(crate) fn read(folder: &Path) -> Result<(NumberTable, Option<String>), Error> {
    let Some((table, is_half)) = csv::read(&folder.join(METRICS))? else {
        let remark = format!("There is no {METRICS}: no epoch has ended yet, or the file was removed.");
        return Ok((NumberTable::default(), Some(remark)));
    };
    let remark = is_half.then(|| format!("The last line of {METRICS} is half written and left out."));
    Ok((table, remark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_read_back_as_it_was() {
        let third = 1.0 / 3.0;
        let row = EpochRow {
            epoch: 1.0,
            seconds_per_step: third * 1e-3,
            samples_per_second: third * 1e6,
            comm_fraction: third * 1e-9,
            exposed_comm_fraction: third,
            train_loss: 2.0 + third,
            scores: vec![("a, b", third * 1e-5), ("say \"c\"\n5,", 1e30 * third)],
            learning_rate: third * 1e-7,
            noise_scale: Some(Some(third)),
        };
        let folder = tempfile::tempdir().unwrap();
        let text =
            EpochRow::csv_header("images", ["test_a, b", "test_say \"c\"\n5,"], true) + &row.csv() + "\n";
        std::fs::write(folder.path().join(METRICS), text).unwrap();
        let (table, remark) = read(folder.path()).unwrap();
        let written = [
            1.0, row.seconds_per_step, row.samples_per_second, row.comm_fraction, row.exposed_comm_fraction,
            row.train_loss, row.scores[0].1, row.scores[1].1, row.learning_rate, third,
        ];
        assert_eq!(table.names[6..8], ["test_a, b", "test_say \"c\"\n5,"]);
        assert_eq!((table.rows, remark), (vec![written.map(Some).to_vec()], None));
    }

    #[test]
    fn written_rows_are_found_by_their_columns() {
        let row = EpochRow {
            epoch: 2.0,
            seconds_per_step: 0.5,
            samples_per_second: 128.0,
            comm_fraction: 0.25,
            exposed_comm_fraction: 0.125,
            train_loss: 1.5,
            scores: vec![("accuracy", 0.75)],
            learning_rate: 0.1,
            noise_scale: Some(None),
        };
        let folder = tempfile::tempdir().unwrap();
        let text = EpochRow::csv_header("tokens", ["test_accuracy"], true) + &row.csv() + "\n3,0.5";
        std::fs::write(folder.path().join(METRICS), text).unwrap();
        let (table, remark) = read(folder.path()).unwrap();
        let last = |name: &str| table.column(name).and_then(Iterator::last).flatten();
        let found = ["epoch", "tokens_per_second", "test_accuracy", "learning_rate", "noise_scale"].map(last);
        assert_eq!(found, [Some(2.0), Some(128.0), Some(0.75), Some(0.1), None]);
        assert!(remark.unwrap().contains("half written"));
    }
}
