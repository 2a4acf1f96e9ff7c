//! `changes.jsonl`: the settings that a run has changed at a checkpoint from which it continued.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::lines;

/// Name of the file.
pub const CHANGES: &str = "changes.jsonl";

/// A setting with another value from some step on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeRow {
    /// The first step with the new value, from 0.
    pub step: u64,
    /// Name of the setting in `config.toml`, with its section in front.
    pub setting: String,
    /// Value before that step.
    pub before: String,
    /// Value from that step on.
    pub after: String,
}

impl ChangeRow {
    /// Returns the row as one line of JSON without a line break.
    ///
    /// # Errors
    ///
    /// No case is known; errors of the encoder are passed on.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }
}

/// Reads the changes of a run, and returns a remark on an incomplete file. Most runs have none.
pub(crate) fn read(folder: &Path) -> Result<(Vec<ChangeRow>, Option<String>), Error> {
    let Some(lines) = lines::read(&folder.join(CHANGES))? else { return Ok((Vec::new(), None)) };
    let remark = lines.is_half.then(|| format!("The last line of {CHANGES} is half written and left out."));
    Ok((lines.values.into_iter().map(|(_, row)| row).collect(), remark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()).unwrap(), (Vec::new(), None));
        let [setting, before, after] = ["data", "\"folder:a\"", "\"folder:b\""].map(String::from);
        let row = ChangeRow { step: 40, setting, before, after };
        let line = row.json().unwrap() + "\n";
        std::fs::write(folder.path().join(CHANGES), [&line, &line[..20]].concat()).unwrap();
        let (rows, remark) = read(folder.path()).unwrap();
        assert_eq!(rows, [row]);
        assert!(remark.unwrap().contains("half written"));
    }
}
