//! `generations.jsonl`: the workers of an elastic job, as they came and went.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::lines;

/// Name of the file.
pub const GENERATIONS: &str = "generations.jsonl";

/// A generation of an elastic job that has come to a step. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerationRow {
    /// Its number, from 1.
    pub generation: u64,
    /// Its workers.
    pub world_size: usize,
    /// Why the last one has ended.
    pub reason: String,
    /// When rank 0's group had formed.
    pub formed_unix: f64,
    /// The first step that it has done, from 0.
    pub first_step: u64,
    /// When that step was done.
    pub first_step_unix: f64,
}

impl GenerationRow {
    /// The row as one line of JSON without a line break.
    ///
    /// # Errors
    ///
    /// None that is known; those of the codec are passed on.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// From its group until its first step was done: state that is handed on, and the step.
    pub fn seconds_to_first_step(&self) -> f64 {
        (self.first_step_unix - self.formed_unix).max(0.0)
    }
}

/// Seconds since 1970.
pub fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// The generations of a run, and what has to be said of the file. Without one the job was not elastic.
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
