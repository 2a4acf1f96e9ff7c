//! `generations.jsonl`: the workers of an elastic job, as they came and went.

use std::path::Path;

use serde::Deserialize;

use super::lines;
use crate::error::Error;

const FILE: &str = "generations.jsonl";

/// A generation of an elastic job that has come to a step. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct GenerationRow {
    /// Its number, from 1.
    pub generation: u64,
    /// Its workers.
    pub world_size: usize,
    /// Why the last one has ended.
    pub reason: String,
    /// When its group had formed.
    pub formed_unix: f64,
    /// The first step that it has done, from 0.
    pub first_step: u64,
    /// When that step was done.
    pub first_step_unix: f64,
}

impl GenerationRow {
    /// From its group until its first step was done: state that is handed on, and the step.
    pub fn seconds_to_first_step(&self) -> f64 {
        (self.first_step_unix - self.formed_unix).max(0.0)
    }
}

/// The generations of a run, and what has to be said of the file. Without one the job was not elastic.
pub(super) fn read(folder: &Path) -> Result<(Vec<GenerationRow>, Option<String>), Error> {
    let Some(lines) = lines::read(&folder.join(FILE))? else { return Ok((Vec::new(), None)) };
    let remark = lines.is_half.then(|| format!("The last line of {FILE} is half written and left out."));
    Ok((lines.values.into_iter().map(|(_, row)| row).collect(), remark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_generation() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()).unwrap(), (Vec::new(), None));
        let line = "{\"generation\":2,\"world_size\":1,\"reason\":\"rank 1 died\",\"formed_unix\":10.0,\
                    \"first_step\":7,\"first_step_unix\":12.5}\n";
        std::fs::write(folder.path().join(FILE), [line, &line[..20]].concat()).unwrap();
        let (rows, remark) = read(folder.path()).unwrap();
        assert_eq!((rows.len(), rows[0].seconds_to_first_step()), (1, 2.5));
        assert!(remark.unwrap().contains("half written"));
    }
}
