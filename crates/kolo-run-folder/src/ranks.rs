//! `ranks.jsonl`: what each rank does with its time, as the ranks tell one another in each comparison. Rank
//! 0's own steps are in `steps.jsonl`; only here is what the others wait for, and for whom.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::lines;

/// Name of the file.
pub const RANKS: &str = "ranks.jsonl";

/// A comparison of all ranks, after the steps that it is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RanksRow {
    /// The last step that it is about, from 0.
    pub step: u64,
    /// The generation of an elastic job; 0 where the job is none.
    #[serde(default)]
    pub generation: u64,
    /// Each rank's times, by its number in that generation.
    pub ranks: Vec<RankTimes>,
}

/// What a rank's training thread does on its own clock, in seconds of the median step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankTimes {
    /// Its shards of each step.
    pub shards: usize,
    /// It computes, or does anything else but wait.
    pub compute_seconds: f64,
    /// It waits for data.
    pub data_seconds: f64,
    /// By how much the mean of both is above the median: what stalls in bursts cost.
    #[serde(default)]
    pub stalled_seconds: f64,
    /// It waits for communication.
    pub exposed_seconds: f64,
    /// The rank for which its collectives wait longest, if they wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_for: Option<usize>,
    /// How long they wait for that rank.
    #[serde(default)]
    pub waited_seconds: f64,
}

impl RankTimes {
    /// Seconds a step in which others would have to wait for it, with what its stalls cost.
    pub fn busy_seconds(&self) -> f64 {
        self.compute_seconds + self.data_seconds + self.stalled_seconds
    }
}

impl RanksRow {
    /// The row as one line of JSON without a line break.
    ///
    /// # Errors
    ///
    /// None that is known; those of the codec are passed on.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }
}

/// The comparisons of a run, and what has to be said of the file. A run of one worker, and one of the first
/// versions, has none.
pub(crate) fn read(folder: &Path) -> Result<(Vec<RanksRow>, Option<String>), Error> {
    let Some(lines) = lines::read(&folder.join(RANKS))? else { return Ok((Vec::new(), None)) };
    let remark = lines.is_half.then(|| format!("The last line of {RANKS} is half written and left out."));
    Ok((lines.values.into_iter().map(|(_, row)| row).collect(), remark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_is_written_is_read() {
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
        assert_eq!(read(folder.path()).unwrap(), (Vec::new(), None));
        std::fs::write(folder.path().join(RANKS), row.json().unwrap() + "\n{\"step\":").unwrap();
        let (rows, remark) = read(folder.path()).unwrap();
        assert_eq!((rows.as_slice(), rows[0].ranks[1].busy_seconds()), (&[row][..], 0.5));
        assert!(remark.unwrap().contains("half written"));
    }
}
