//! What is measured, and how the figures are defined.
//!
//! T_comm is the time in which at least one bucket is being reduced, T_comp the time of a step in which the
//! training thread did not wait for communication. `comm_fraction` is T_comm / (T_comp + T_comm),
//! `exposed_comm_fraction` the part of the step in which the training thread waited.

use std::collections::VecDeque;
use std::time::Duration;

use kolo_ddp::{LastStep, StepReport};
use serde::Serialize;

use crate::error::Error;

/// A line of `steps.jsonl`.
#[derive(Clone, Debug, Serialize)]
pub struct StepRow {
    /// Number of the step, from 0.
    pub step: u64,
    /// Number of the epoch, from 0.
    pub epoch: usize,
    /// Mean loss over the global batch.
    pub loss: f64,
    /// Images of the global batch.
    pub images: u64,
    /// The rate with which it was taken.
    pub learning_rate: f64,
    /// How long it took on this worker.
    pub seconds: f64,
    /// T_comm: at least one bucket was being reduced.
    pub comm_seconds: f64,
    /// The training thread waited for communication.
    pub exposed_comm_seconds: f64,
    /// Global norm of the gradient before clipping, where it is clipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gradient_norm: Option<f64>,
}

impl StepRow {
    pub(crate) fn new(
        step: u64,
        epoch: usize,
        learning_rate: f64,
        took: Duration,
        report: &StepReport,
    ) -> Self {
        StepRow {
            step,
            epoch,
            loss: report.loss,
            images: report.count as u64,
            learning_rate,
            seconds: took.as_secs_f64(),
            comm_seconds: report.comm_seconds(),
            exposed_comm_seconds: report.exposed.as_secs_f64(),
            gradient_norm: report.gradient_norm,
        }
    }

    /// Of a step whose end this worker has not seen: its communication was not measured, nor its gradient's
    /// norm.
    pub(crate) fn unseen(last: &LastStep, epoch: usize, learning_rate: f64, took: Duration) -> Self {
        StepRow {
            step: last.step,
            epoch,
            loss: last.loss,
            images: last.count as u64,
            learning_rate,
            seconds: took.as_secs_f64(),
            comm_seconds: 0.0,
            exposed_comm_seconds: 0.0,
            gradient_norm: None,
        }
    }

    pub(crate) fn json(&self) -> Result<String, Error> {
        serde_json::to_string(self).map_err(|e| Error::Encode { what: "a step", problem: e.to_string() })
    }
}

/// A row of `metrics.csv`.
#[derive(Clone, Debug)]
pub struct EpochRow {
    /// From 1.
    pub epoch: usize,
    /// Mean over the last 20 steps of the epoch.
    pub seconds_per_step: f64,
    /// Images of all workers by the time of the steps.
    pub images_per_second: f64,
    /// T_comm / (T_comp + T_comm).
    pub comm_fraction: f64,
    /// Share of the time in which the training thread waited for communication.
    pub exposed_comm_fraction: f64,
    /// Mean loss over the images of the epoch.
    pub train_loss: f64,
    /// Share of the test samples that are classified rightly, after the epoch.
    pub test_accuracy: f64,
    /// That of the last step.
    pub learning_rate: f64,
}

impl EpochRow {
    /// The first line of `metrics.csv`.
    pub(crate) const CSV_HEADER: &'static str = "epoch,seconds_per_step,images_per_second,comm_fraction,\
                                               exposed_comm_fraction,train_loss,test_accuracy,learning_rate\n";

    /// The columns of `metrics.csv`.
    pub(crate) fn csv(&self) -> String {
        format!(
            "{},{:.6},{:.2},{:.4},{:.4},{:.6},{:.4},{}",
            self.epoch,
            self.seconds_per_step,
            self.images_per_second,
            self.comm_fraction,
            self.exposed_comm_fraction,
            self.train_loss,
            self.test_accuracy,
            self.learning_rate
        )
    }
}

/// Sums over steps.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    /// Σ loss × images, to continue an epoch after a checkpoint within it.
    pub(crate) loss_sum: f64,
    pub(crate) images: f64,
    measured_images: f64,
    seconds: f64,
    comm_seconds: f64,
    exposed_seconds: f64,
    last: VecDeque<f64>,
    all: Vec<f64>,
}

/// `seconds_per_step` looks at that many last steps.
const WINDOW: usize = 20;

impl Meter {
    /// Of steps that others have measured.
    pub(crate) fn of(loss_sum: f64, images: f64) -> Self {
        Meter { loss_sum, images, ..Meter::default() }
    }

    pub(crate) fn add(&mut self, row: &StepRow) {
        self.loss_sum += row.loss * row.images as f64;
        self.images += row.images as f64;
        self.measured_images += row.images as f64;
        self.seconds += row.seconds;
        self.comm_seconds += row.comm_seconds;
        self.exposed_seconds += row.exposed_comm_seconds;
        if self.last.len() == WINDOW {
            self.last.pop_front();
        }
        self.last.push_back(row.seconds);
        self.all.push(row.seconds);
    }

    /// Mean loss over the images.
    pub fn train_loss(&self) -> f64 {
        self.loss_sum / self.images.max(1.0)
    }

    /// Images of all workers by the time of the steps.
    pub fn images_per_second(&self) -> f64 {
        self.measured_images / self.seconds.max(1e-9)
    }

    /// Mean of the last 20 steps.
    pub fn seconds_per_step(&self) -> f64 {
        self.last.iter().sum::<f64>() / self.last.len().max(1) as f64
    }

    /// T_comm / (T_comp + T_comm).
    pub fn comm_fraction(&self) -> f64 {
        let compute = self.seconds - self.exposed_seconds;
        self.comm_seconds / (compute + self.comm_seconds).max(1e-9)
    }

    /// Share of the time in which the training thread waited for communication.
    pub fn exposed_comm_fraction(&self) -> f64 {
        self.exposed_seconds / self.seconds.max(1e-9)
    }

    /// The time below which `percent` % of the steps lie.
    pub fn step_percentile(&self, percent: f64) -> f64 {
        percentile(&self.all, percent)
    }
}

/// The value below which `percent` % of the samples lie (nearest rank); 0 without samples.
pub fn percentile(samples: &[f64], percent: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(seconds: f64) -> StepRow {
        StepRow {
            step: 0,
            epoch: 0,
            loss: 2.0,
            images: 10,
            learning_rate: 0.1,
            seconds,
            comm_seconds: 0.25 * seconds,
            exposed_comm_seconds: 0.1 * seconds,
            gradient_norm: None,
        }
    }

    #[test]
    fn figures_follow_their_definitions() {
        let mut meter = Meter::default();
        (0..30).for_each(|n| meter.add(&row(if n < 10 { 5.0 } else { 1.0 })));
        assert_eq!(meter.seconds_per_step(), 1.0);
        assert!((meter.images_per_second() - 300.0 / 70.0).abs() < 1e-9);
        assert!((meter.comm_fraction() - 0.25 / 1.15).abs() < 1e-9);
        assert!((meter.exposed_comm_fraction() - 0.1).abs() < 1e-9);
        assert_eq!((meter.step_percentile(50.0), meter.step_percentile(95.0)), (1.0, 5.0));
    }

    #[test]
    fn percentiles() {
        let samples: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!([50.0, 95.0, 99.0, 100.0].map(|p| percentile(&samples, p)), [50.0, 95.0, 99.0, 100.0]);
        assert_eq!(percentile(&[], 50.0), 0.0);
    }
}
