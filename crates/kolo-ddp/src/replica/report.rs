//! What a replica tells of a step.

use std::time::Duration;

use super::Change;
use crate::reducer::BucketTiming;
use crate::straggler::Straggler;

/// What a step gave.
#[derive(Clone, Debug)]
pub struct StepReport {
    /// Mean loss over the global batch.
    pub loss: f64,
    /// What the mean is over: samples of the global batch.
    pub count: f64,
    /// Global norm of the gradient before its transforms; measured only where one of them, such as clipping, needs it.
    pub gradient_norm: Option<f64>,
    /// Each bucket's last reduction that is over: of this step, or of the one before where it is still on the wire.
    pub buckets: Vec<BucketTiming>,
    /// Time in which this rank's thread waited for communication since the last report.
    pub exposed: Duration,
    /// Buckets whose reduction had been started before the last backward pass was over.
    pub started_early: usize,
    /// What has become of this worker, in an elastic job.
    pub change: Change,
    /// A rank that has turned out to hold the others up; on all ranks alike, once a finding.
    pub straggler: Option<Straggler>,
    /// Whether ranks have other shards from the next step on ([`Policy::Shed`](crate::straggler::Policy::Shed)): ask [`Reducer::shards`](crate::Reducer::shards) again.
    pub shards_changed: bool,
}

impl StepReport {
    /// Seconds in which at least one bucket was being reduced.
    pub fn comm_seconds(&self) -> f64 {
        self.buckets.iter().map(|bucket| bucket.seconds).sum()
    }
}
