//! Adds stragglers and failures to a predicted step.

use serde::Serialize;

use crate::failures::{Checkpoints, Failures};
use crate::step::predict::Prediction;
use crate::step::profile::StepProfile;
use crate::stragglers::slowest_of_normals;

/// Differences between steps and between workers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disturbances {
    /// Standard deviation of the computing time, as a share of its mean; independent over workers and steps.
    pub spread: f64,
    /// Failures, if they are modeled.
    pub failures: Option<FailureCosts>,
}

/// Frequency and cost of failures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FailureCosts {
    /// Mean time between the failures of one worker, in seconds.
    pub worker_mtbf: f64,
    /// Seconds from a failure until the other workers continue, in an elastic job.
    pub recovery: f64,
    /// Costs of a job that restarts from checkpoints.
    pub checkpoints: Checkpoints,
}

/// Predicted progress of a job.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Outlook {
    /// Step without disturbances.
    #[serde(flatten)]
    pub prediction: Prediction,
    /// Average seconds per step in which workers wait for the slowest.
    pub straggling: f64,
    /// Share of time spent on steps that count, in an elastic job; 1 without failures.
    pub goodput: f64,
    /// Share of time spent on steps that count if each failure restarts the job from its last checkpoint.
    pub goodput_with_restarts: Option<f64>,
    /// Seconds between checkpoints that minimize the loss in that case.
    pub checkpoint_interval: Option<f64>,
    /// Samples per second, relative to one worker with one shard per step.
    pub speedup: f64,
}

/// Adds disturbances to a prediction. In every step all workers wait for the slowest, by the expected
/// distance of the largest of their normal times from the mean. This time hides no communication.
pub fn outlook(prediction: Prediction, profile: &StepProfile, disturbances: &Disturbances) -> Outlook {
    let workers = prediction.workers;
    let shards = prediction.shards as f64;
    let passes = shards * (profile.forward + profile.backward) + profile.optimizer;
    let straggling = disturbances.spread * passes * slowest_of_normals(workers as u64);
    let step = prediction.seconds + straggling;
    let mut outlook = Outlook {
        prediction,
        straggling,
        goodput: 1.0,
        goodput_with_restarts: None,
        checkpoint_interval: None,
        speedup: 0.0,
    };
    if let Some(FailureCosts { worker_mtbf, recovery, checkpoints }) = disturbances.failures {
        let failures = Failures { worker_mtbf, workers: workers as f64 };
        let interval = checkpoints.best_interval(failures.job_mtbf());
        outlook.goodput = failures.goodput_elastic(step, recovery);
        outlook.goodput_with_restarts = Some(failures.goodput_with_restarts(&checkpoints, interval));
        outlook.checkpoint_interval = Some(interval);
    }
    outlook.speedup = workers as f64 * shards * profile.alone() / step * outlook.goodput;
    outlook
}

/// Returns the first of the predicted numbers of workers, in ascending order, beyond which a further worker
/// brings less than half of what a single worker does.
pub fn not_worth_from(outlooks: &[Outlook]) -> Option<usize> {
    let brings = |pair: &[Outlook]| {
        let more = (pair[1].prediction.workers - pair[0].prediction.workers) as f64;
        (pair[1].speedup - pair[0].speedup) / more
    };
    let pair = outlooks.windows(2).find(|pair| brings(pair) < 0.5)?;
    Some(pair[0].prediction.workers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> StepProfile {
        StepProfile::even(0.3, 0.6, 0.1, 4e6, 1e6)
    }

    /// Returns a step that communication does not prolong.
    fn hidden(workers: usize) -> Prediction {
        Prediction {
            workers,
            seconds: 1.0,
            exposed: 0.0,
            wire: 0.1,
            efficiency: 1.0,
            shards: 1,
            algorithm: "ring",
        }
    }

    #[test]
    fn no_disturbances_change_nothing() {
        let result = outlook(hidden(64), &profile(), &Disturbances::default());
        assert_eq!((result.straggling, result.goodput, result.goodput_with_restarts), (0.0, 1.0, None));
        assert!((result.speedup - 64.0).abs() < 1e-9);
    }

    #[test]
    fn many_wait_for_their_slowest() {
        let spread = Disturbances { spread: 0.1, ..Disturbances::default() };
        let result = outlook(hidden(64), &profile(), &spread);
        // The slowest of 64 lies 2.344 standard deviations above the mean.
        assert!((result.straggling - 0.2344).abs() < 1e-3, "{result:?}");
        assert!((result.speedup - 64.0 / 1.2344).abs() < 0.1, "{result:?}");
        assert!(
            outlook(hidden(1), &profile(), &spread).straggling.abs() < 1e-9,
            "a single worker never waits"
        );
    }

    #[test]
    fn an_elastic_job_loses_less_to_failures() {
        let checkpoints = Checkpoints { write: 30.0, restart: 600.0 };
        let failures = Some(FailureCosts { worker_mtbf: 5e7, recovery: 5.0, checkpoints });
        let result = outlook(hidden(16_384), &profile(), &Disturbances { spread: 0.0, failures });
        let mtbf = 5e7 / 16_384.0;
        assert!((result.goodput - (1.0 - 5.5 / mtbf)).abs() < 1e-12, "{result:?}");
        assert!(result.goodput_with_restarts.unwrap() < 0.7, "{result:?}");
        assert!((result.checkpoint_interval.unwrap() - (2.0 * 30.0 * mtbf).sqrt()).abs() < 1e-9);
    }

    #[test]
    fn the_end_of_scaling_is_found() {
        let of = |workers: usize, seconds: f64| {
            outlook(Prediction { seconds, ..hidden(workers) }, &profile(), &Disturbances::default())
        };
        // Speedups 1, 1.8, 3, 4: the last four workers add one.
        let outlooks = [of(1, 1.0), of(2, 2.0 / 1.8), of(4, 4.0 / 3.0), of(8, 2.0)];
        assert_eq!(not_worth_from(&outlooks), Some(4));
        assert_eq!(not_worth_from(&outlooks[..3]), None);
    }
}
