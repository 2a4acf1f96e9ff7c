//! `generations.jsonl`: the generations of an elastic job.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::lines;

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

impl GenerationRow {
    /// Returns the row as one line of JSON without a line break.
    ///
    /// # Errors
    ///
    /// No case is known; errors of the encoder are passed on.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// Seconds from the formed group to the end of its first step, including the transfer of state.
    pub fn seconds_to_first_step(&self) -> f64 {
        (self.first_step_unix - self.formed_unix).max(0.0)
    }
}

/// Seconds since 1970.
pub fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// Reads the generations of a run, and returns a remark on an incomplete file. Only elastic jobs have one.
pub(crate) fn read(folder: &Path) -> Result<(Vec<GenerationRow>, Option<String>), Error> {
    let Some(lines) = lines::read(&folder.join(GENERATIONS))? else { return Ok((Vec::new(), None)) };
    let remark =
        lines.is_half.then(|| format!("The last line of {GENERATIONS} is half written and left out."));
    Ok((lines.values.into_iter().map(|(_, row)| row).collect(), remark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_generation() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()).unwrap(), (Vec::new(), None));
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
        let (rows, remark) = read(folder.path()).unwrap();
        assert_eq!((rows.as_slice(), rows[0].seconds_to_first_step()), (&[row][..], 2.5));
        assert!(remark.unwrap().contains("half written"));
    }
}
