//! What is measured, and how the figures are defined.
//!
//! T_comm is the time in which at least one bucket is being reduced, T_comp the time of a step in which the
//! training thread did not wait for communication. `comm_fraction` is T_comm / (T_comp + T_comm),
//! `exposed_comm_fraction` the part of the step in which the training thread waited.

use std::collections::VecDeque;
use std::time::Duration;

use kolo_ddp::{BucketTiming, LastStep, StepReport};
use serde::Serialize;

use crate::error::Error;

/// A line of `steps.jsonl`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StepRow {
    pub(crate) step: u64,
    pub(crate) epoch: usize,
    pub(crate) loss: f64,
    pub(crate) images: u64,
    pub(crate) learning_rate: f64,
    pub(crate) seconds: f64,
    pub(crate) comm_seconds: f64,
    pub(crate) exposed_comm_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gradient_norm: Option<f64>,
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
pub(crate) struct EpochRow {
    /// From 1.
    pub(crate) epoch: usize,
    pub(crate) seconds_per_step: f64,
    pub(crate) images_per_second: f64,
    pub(crate) comm_fraction: f64,
    pub(crate) exposed_comm_fraction: f64,
    pub(crate) train_loss: f64,
    pub(crate) test_accuracy: f64,
    pub(crate) learning_rate: f64,
}

impl EpochRow {
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
pub(crate) struct Meter {
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

    pub(crate) fn train_loss(&self) -> f64 {
        self.loss_sum / self.images.max(1.0)
    }

    pub(crate) fn images_per_second(&self) -> f64 {
        self.measured_images / self.seconds.max(1e-9)
    }

    pub(crate) fn seconds_per_step(&self) -> f64 {
        self.last.iter().sum::<f64>() / self.last.len().max(1) as f64
    }

    pub(crate) fn comm_fraction(&self) -> f64 {
        let compute = self.seconds - self.exposed_seconds;
        self.comm_seconds / (compute + self.comm_seconds).max(1e-9)
    }

    pub(crate) fn exposed_comm_fraction(&self) -> f64 {
        self.exposed_seconds / self.seconds.max(1e-9)
    }

    pub(crate) fn step_percentile(&self, percent: f64) -> f64 {
        percentile(&self.all, percent)
    }
}

/// A row of `buckets.csv`.
#[derive(Clone, Debug)]
pub(crate) struct BucketRow {
    pub(crate) bucket: usize,
    pub(crate) bytes: usize,
    pub(crate) p50_us: f64,
    pub(crate) p95_us: f64,
    pub(crate) p99_us: f64,
}

/// How long each bucket's reductions took.
#[derive(Debug, Default)]
pub(crate) struct BucketMeter {
    samples: Vec<(usize, Vec<f64>)>,
}

impl BucketMeter {
    pub(crate) fn add(&mut self, buckets: &[BucketTiming]) {
        let sizes = |other: &[BucketTiming]| other.iter().map(|bucket| bucket.bytes).collect::<Vec<_>>();
        if self.samples.iter().map(|(bytes, _)| *bytes).collect::<Vec<_>>() != sizes(buckets) {
            // The buckets have been rebuilt, as they are after the first step.
            self.samples = buckets.iter().map(|bucket| (bucket.bytes, Vec::new())).collect();
        }
        for ((_, samples), bucket) in self.samples.iter_mut().zip(buckets) {
            samples.push(bucket.seconds * 1e6);
        }
    }

    pub(crate) fn rows(&self) -> Vec<BucketRow> {
        let row = |(bucket, (bytes, samples)): (usize, &(usize, Vec<f64>))| BucketRow {
            bucket,
            bytes: *bytes,
            p50_us: percentile(samples, 50.0),
            p95_us: percentile(samples, 95.0),
            p99_us: percentile(samples, 99.0),
        };
        self.samples.iter().enumerate().map(row).collect()
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
