//! How stale the weights of a run's steps were.

use kolo_ddp::Staleness;
use serde::Serialize;

/// By how many steps of some other worker the weights were behind that workers pulled.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StalenessSummary {
    /// On average.
    pub mean: f64,
    /// At most.
    pub most: usize,
    /// How many pulls were so many steps behind, from 0.
    pub pulls: Vec<u64>,
}

impl StalenessSummary {
    pub(crate) fn of(staleness: &Staleness) -> Self {
        let (mean, most) = (staleness.mean(), staleness.most());
        StalenessSummary { mean, most, pulls: staleness.pulls().to_vec() }
    }

    /// In words.
    pub fn words(&self) -> String {
        let pulls: u64 = self.pulls.iter().sum();
        format!("{:.2} steps behind on average, {} at most, in {pulls} pulls", self.mean, self.most)
    }
}
