//! Measurements of a run, and the definitions of their figures.
//!
//! `comm_fraction` is the share of the steps' time in which at least one bucket was being reduced,
//! `exposed_comm_fraction` the share in which the training thread waited for communication, be it for buckets
//! or for ranks that were late. Neither is more than 1: what is on its way between two steps, while the model
//! is tested, counts for no more than the steps.

use std::collections::VecDeque;
use std::time::Duration;

use kolo_ddp::{LastStep, NoiseScale, StepReport};
use kolo_run_folder::NoiseRow;
use serde::{Deserialize, Serialize};

use crate::metric::{Metric, Scores};
use crate::samples::Samples;
use kolo_recipe::Error;

/// A line of `steps.jsonl`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StepRow {
    /// Number of the step, from 0.
    pub step: u64,
    /// Number of the epoch, from 0.
    pub epoch: usize,
    /// Mean loss over the global batch.
    pub loss: f64,
    /// Samples of the global batch, or another unit that the loss counts.
    pub count: u64,
    /// Learning rate of the step.
    pub learning_rate: f64,
    /// Seconds of the step on this worker.
    pub seconds: f64,
    /// Seconds in which at least one bucket was being reduced.
    pub comm_seconds: f64,
    /// Seconds in which the training thread waited for communication.
    pub exposed_comm_seconds: f64,
    /// Seconds of the backward passes.
    pub backward_seconds: f64,
    /// Seconds of the update: of this step, or of the one before if the forward pass makes the update.
    pub optimizer_seconds: f64,
    /// Global norm of the gradient before clipping, if it is clipped.
    pub gradient_norm: Option<f64>,
    /// Noise scale of the gradient after the step, if it is measured.
    pub noise_scale: Option<NoiseScale>,
    /// True if the step overflowed and changed nothing.
    pub skipped: bool,
    /// Factor of loss scaling, if there is one and it was seen.
    pub loss_scale: Option<f32>,
}

impl StepRow {
    /// Makes the row of a step that `took` so long, by its report.
    pub fn new(step: u64, epoch: usize, learning_rate: f64, took: Duration, report: &StepReport) -> Self {
        StepRow {
            step,
            epoch,
            loss: report.loss,
            count: report.count as u64,
            learning_rate,
            seconds: took.as_secs_f64(),
            comm_seconds: report.times.communicating.as_secs_f64(),
            exposed_comm_seconds: report.times.exposed.as_secs_f64(),
            backward_seconds: report.times.backward.as_secs_f64(),
            optimizer_seconds: report.times.optimizer.as_secs_f64(),
            gradient_norm: report.gradient_norm,
            noise_scale: report.noise_scale,
            skipped: report.skipped,
            loss_scale: report.loss_scale,
        }
    }

    /// Takes over the facts that became known after the step's report.
    pub(crate) fn settle(&mut self, known: &LastStep) {
        (self.loss, self.count) = (known.loss, known.count as u64);
        (self.gradient_norm, self.noise_scale) = (known.gradient_norm, known.noise_scale);
        self.skipped = known.skipped;
    }

    /// Makes the row of a step whose end this worker has not seen: it has no measurements.
    pub fn unseen(last: &LastStep, epoch: usize, learning_rate: f64, took: Duration) -> Self {
        StepRow {
            step: last.step,
            epoch,
            loss: last.loss,
            count: last.count as u64,
            learning_rate,
            seconds: took.as_secs_f64(),
            gradient_norm: last.gradient_norm,
            noise_scale: last.noise_scale,
            skipped: last.skipped,
            ..StepRow::default()
        }
    }

    /// Returns the line of `steps.jsonl`. The unit of the loss, such as `images`, is the name of its field.
    pub(crate) fn json(&self, unit: &str) -> Result<String, Error> {
        let line = self.written().json(unit);
        line.map_err(|e| Error::encode("a step", e))
    }

    /// Returns the row in the form of `steps.jsonl`.
    pub(crate) fn written(&self) -> kolo_run_folder::StepRow {
        let noise = |noise: NoiseScale| NoiseRow {
            samples: noise.samples(),
            gradient_squared: noise.gradient_squared(),
            noise_trace: noise.noise_trace(),
        };
        kolo_run_folder::StepRow {
            step: self.step,
            epoch: self.epoch as u64,
            loss: Some(self.loss).filter(|loss| loss.is_finite()),
            samples: self.count as f64,
            learning_rate: self.learning_rate,
            seconds: self.seconds,
            comm_seconds: self.comm_seconds,
            exposed_seconds: self.exposed_comm_seconds,
            backward_seconds: self.backward_seconds,
            optimizer_seconds: self.optimizer_seconds,
            gradient_norm: self.gradient_norm,
            noise: self.noise_scale.map(noise),
            loss_scale: self.loss_scale.map(f64::from),
            skipped: self.skipped,
        }
    }
}

/// A row of `metrics.csv`.
#[derive(Clone, Debug, Default)]
pub struct EpochRow {
    /// Number of the epoch, from 1.
    pub epoch: usize,
    /// Steps done.
    pub steps: u64,
    /// Epochs done, with the share of the one that runs: `1.0` at the end of the first.
    pub epochs_done: f64,
    /// Processes of the group when the row was made, servers included.
    pub world_size: usize,
    /// Mean over the last 20 steps of the epoch.
    pub seconds_per_step: f64,
    /// Samples of all workers, divided by the time of the steps.
    pub samples_per_second: f64,
    /// Share of the steps' time in which at least one bucket was being reduced.
    pub comm_fraction: f64,
    /// Share of the steps' time in which the training thread waited for communication.
    pub exposed_comm_fraction: f64,
    /// Mean loss over the samples of the epoch, as [`Meter::train_loss`].
    pub train_loss: f64,
    /// Scores on the test samples, after the epoch.
    pub scores: Scores,
    /// Learning rate of the last step.
    pub learning_rate: f64,
    /// Noise scale of the gradient after the last step, if it is measured.
    pub noise_scale: Option<NoiseScale>,
}

impl EpochRow {
    /// Returns the first line of `metrics.csv` for a loss in `unit`, these metrics, and with or without a
    /// noise scale.
    pub(crate) fn csv_header(unit: &str, metrics: &[Metric], noise_scale: bool) -> String {
        kolo_run_folder::EpochRow::csv_header(unit, metrics.iter().map(Metric::column), noise_scale)
    }

    pub(crate) fn csv(&self) -> String {
        let row = kolo_run_folder::EpochRow {
            epoch: self.epochs_done,
            seconds_per_step: self.seconds_per_step,
            samples_per_second: self.samples_per_second,
            comm_fraction: self.comm_fraction,
            exposed_comm_fraction: self.exposed_comm_fraction,
            train_loss: self.train_loss,
            scores: self.scores.0.iter().map(|score| (score.metric.name, score.value)).collect(),
            learning_rate: self.learning_rate,
            noise_scale: self.noise_scale.map(|noise| noise.samples()),
        };
        row.csv()
    }
}

/// Sums over steps.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    /// Σ loss × samples, to continue an epoch after a checkpoint within it.
    pub(crate) loss_sum: f64,
    pub(crate) count: f64,
    measured_count: f64,
    seconds: f64,
    comm_seconds: f64,
    exposed_seconds: f64,
    last: VecDeque<f64>,
    all: Samples,
}

/// Number of last steps that `seconds_per_step` covers.
const WINDOW: usize = 20;

impl Meter {
    /// Makes the sums of steps that other workers measured.
    pub(crate) fn of(loss_sum: f64, count: f64) -> Self {
        Meter { loss_sum, count, ..Meter::default() }
    }

    pub(crate) fn add(&mut self, row: &StepRow) {
        // A skipped step may have no loss.
        if row.loss.is_finite() {
            self.loss_sum += row.loss * row.count as f64;
            self.count += row.count as f64;
        }
        self.measured_count += row.count as f64;
        self.seconds += row.seconds;
        self.comm_seconds += row.comm_seconds;
        self.exposed_seconds += row.exposed_comm_seconds;
        if self.last.len() == WINDOW {
            self.last.pop_front();
        }
        self.last.push_back(row.seconds);
        self.all.push(row.seconds);
    }

    /// Mean loss over the samples of all steps that have a loss; NaN if none has.
    pub fn train_loss(&self) -> f64 {
        self.loss_sum / self.count
    }

    /// Samples of all workers, divided by the time of the steps.
    pub fn samples_per_second(&self) -> f64 {
        self.measured_count / self.seconds.max(1e-9)
    }

    /// Seconds of the steps that were measured.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Mean of the last 20 steps.
    pub fn seconds_per_step(&self) -> f64 {
        self.last.iter().sum::<f64>() / self.last.len().max(1) as f64
    }

    /// Share of the steps' time in which at least one bucket was being reduced, at most 1.
    pub fn comm_fraction(&self) -> f64 {
        self.share(self.comm_seconds)
    }

    /// Share of the steps' time in which the training thread waited for communication, at most 1.
    pub fn exposed_comm_fraction(&self) -> f64 {
        self.share(self.exposed_seconds)
    }

    fn share(&self, seconds: f64) -> f64 {
        (seconds / self.seconds.max(1e-9)).min(1.0)
    }

    /// Time below which `percent` % of the steps lie. For more than 8,192 steps, a subset spread evenly over
    /// the run decides.
    pub fn step_percentile(&self, percent: f64) -> f64 {
        self.all.percentile(percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(seconds: f64) -> StepRow {
        StepRow {
            loss: 2.0,
            count: 10,
            seconds,
            comm_seconds: 0.25 * seconds,
            exposed_comm_seconds: 0.1 * seconds,
            ..StepRow::default()
        }
    }

    #[test]
    fn steps_without_a_loss_are_no_part_of_the_mean() {
        let mut meter = Meter::default();
        assert!(meter.train_loss().is_nan());
        for loss in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            meter.add(&StepRow { loss, skipped: true, ..row(1.0) });
            assert!(meter.train_loss().is_nan());
        }
        for (loss, count) in [(3.0, 16), (f64::NAN, 16), (0.5, 4)] {
            meter.add(&StepRow { loss, count, ..row(1.0) });
        }
        assert_eq!(meter.train_loss(), (3.0 * 16.0 + 0.5 * 4.0) / 20.0);
    }

    #[test]
    fn figures_follow_their_definitions() {
        let mut meter = Meter::default();
        (0..30).for_each(|n| meter.add(&row(if n < 10 { 5.0 } else { 1.0 })));
        assert_eq!(meter.seconds_per_step(), 1.0);
        assert!((meter.samples_per_second() - 300.0 / 70.0).abs() < 1e-9);
        assert!((meter.samples_per_second() * meter.seconds() - 300.0).abs() < 1e-9);
        assert!((meter.comm_fraction() - 0.25).abs() < 1e-9);
        assert!((meter.exposed_comm_fraction() - 0.1).abs() < 1e-9);
        assert_eq!((meter.step_percentile(50.0), meter.step_percentile(95.0)), (1.0, 5.0));
        // Begun in another step, whose time is not counted here.
        meter.add(&StepRow { comm_seconds: 100.0, exposed_comm_seconds: 200.0, ..row(1.0) });
        assert_eq!((meter.comm_fraction(), meter.exposed_comm_fraction()), (1.0, 1.0));
    }
}
