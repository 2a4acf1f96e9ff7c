//! `changes.jsonl`: the settings that a run has changed at a checkpoint from which it continued.

use serde::{Deserialize, Serialize};

use crate::lines::JsonRow;

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

impl JsonRow for ChangeRow {
    const FILE: &str = CHANGES;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::rows;

    #[test]
    fn a_line_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(rows::<ChangeRow>(folder.path()).unwrap(), (Vec::new(), None));
        let [setting, before, after] = ["data", "\"folder:a\"", "\"folder:b\""].map(String::from);
        let row = ChangeRow { step: 40, setting, before, after };
        let line = row.json().unwrap() + "\n";
        std::fs::write(folder.path().join(CHANGES), [&line, &line[..20]].concat()).unwrap();
        let (rows, remark) = rows::<ChangeRow>(folder.path()).unwrap();
        assert_eq!(rows, [row]);
        assert!(remark.unwrap().contains("half written"));
    }
}
