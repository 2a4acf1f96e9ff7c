//! The staleness of the weights in a run's steps.

use kolo_ddp::Staleness;
use kolo_run_folder::units::counted;
use serde::Serialize;

/// Staleness of pulled weights, in steps behind another worker.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StalenessSummary {
    /// Mean.
    pub mean: f64,
    /// Maximum.
    pub most: usize,
    /// Number of pulls for each staleness, from 0.
    pub pulls: Vec<u64>,
}

impl StalenessSummary {
    /// Sums up the pulls of all workers.
    pub fn of(staleness: &Staleness) -> Self {
        let (mean, most) = (staleness.mean(), staleness.most());
        StalenessSummary { mean, most, pulls: staleness.pulls().to_vec() }
    }

    /// Describes the staleness.
    pub fn words(&self) -> String {
        let pulls: u64 = self.pulls.iter().sum();
        let pulls = counted(pulls, "pull");
        format!("{:.2} steps behind on average, {} at most, in {pulls}", self.mean, self.most)
    }
}
