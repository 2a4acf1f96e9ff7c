//! `ranks.jsonl`: the time use of each rank, as the ranks report it to one another in each comparison.
//! `steps.jsonl` has only rank 0's steps; this file shows how long other ranks wait, and for which rank.

use serde::{Deserialize, Serialize};

use crate::lines::JsonRow;

/// Name of the file.
pub const RANKS: &str = "ranks.jsonl";

/// A comparison of all ranks, at the end of the steps that it covers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RanksRow {
    /// The last step that it covers, from 0.
    pub step: u64,
    /// The generation of an elastic job; 0 for other jobs.
    #[serde(default)]
    pub generation: u64,
    /// Each rank's times, by its number in that generation.
    pub ranks: Vec<RankTimes>,
}

/// Time use of a rank's training thread by its own clock, in seconds of the median step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankTimes {
    /// Number of its shards of each step.
    pub shards: usize,
    /// Time for computing and everything else except waiting.
    pub compute_seconds: f64,
    /// Time of waiting for data.
    pub data_seconds: f64,
    /// Excess of the mean of both over the median: the cost of stalls that come in bursts.
    #[serde(default)]
    pub stalled_seconds: f64,
    /// Time of waiting for communication.
    pub exposed_seconds: f64,
    /// The rank for which its collectives wait longest, if they wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_for: Option<usize>,
    /// Time that they wait for that rank.
    #[serde(default)]
    pub waited_seconds: f64,
}

impl RankTimes {
    /// Seconds of each step that other ranks would have to wait for this rank, including its stalls.
    pub fn busy_seconds(&self) -> f64 {
        self.compute_seconds + self.data_seconds + self.stalled_seconds
    }
}

impl JsonRow for RanksRow {
    const FILE: &str = RANKS;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::rows;

    #[test]
    fn written_rows_are_read_back() {
        let waits = RankTimes {
            shards: 2,
            compute_seconds: 0.5,
            exposed_seconds: 0.25,
            waited_for: Some(0),
            waited_seconds: 0.125,
            ..RankTimes::default()
        };
        let row = RanksRow { step: 39, generation: 1, ranks: vec![RankTimes::default(), waits] };
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(rows::<RanksRow>(folder.path()).unwrap(), (Vec::new(), None));
        std::fs::write(folder.path().join(RANKS), row.json().unwrap() + "\n{\"step\":").unwrap();
        let (rows, remark) = rows::<RanksRow>(folder.path()).unwrap();
        assert_eq!((rows.as_slice(), rows[0].ranks[1].busy_seconds()), (&[row][..], 0.5));
        assert!(remark.unwrap().contains("half written"));
    }
}
