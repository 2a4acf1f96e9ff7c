//! `generations.jsonl`: the generations of an elastic job.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::lines::JsonRow;

/// Name of the file.
pub const GENERATIONS: &str = "generations.jsonl";

/// A generation of an elastic job that has completed a step. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerationRow {
    /// Number of the generation, from 1.
    pub generation: u64,
    /// Number of its workers.
    pub world_size: usize,
    /// Reason for the end of the generation before.
    pub reason: String,
    /// Time at which rank 0's group had formed.
    pub formed_unix: f64,
    /// The first step that it completed, from 0.
    pub first_step: u64,
    /// Time at which it completed that step.
    pub first_step_unix: f64,
}

impl JsonRow for GenerationRow {
    const FILE: &str = GENERATIONS;
}

impl GenerationRow {
    /// Seconds from the formed group to the end of its first step, including the transfer of state.
    pub fn seconds_to_first_step(&self) -> f64 {
        (self.first_step_unix - self.formed_unix).max(0.0)
    }
}

/// Seconds since 1970.
pub fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::rows;

    #[test]
    fn a_line_is_a_generation() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(rows::<GenerationRow>(folder.path()).unwrap(), (Vec::new(), None));
        let row = GenerationRow {
            generation: 2,
            world_size: 1,
            reason: "rank 1 died".into(),
            formed_unix: 10.0,
            first_step: 7,
            first_step_unix: 12.5,
        };
        let line = row.json().unwrap() + "\n";
        std::fs::write(folder.path().join(GENERATIONS), [&line, &line[..20]].concat()).unwrap();
        let (rows, remark) = rows::<GenerationRow>(folder.path()).unwrap();
        assert_eq!((rows.as_slice(), rows[0].seconds_to_first_step()), (&[row][..], 2.5));
        assert!(remark.unwrap().contains("half written"));
    }
}
