//! `summary.json`: the results of a run. A run that has one has done all of its steps.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::classification::Classification;
use crate::error::Error;
use crate::lines;

/// Name of the file.
pub const SUMMARY: &str = "summary.json";

/// The results of a run. Other versions of Kolo may write other fields.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Summary {
    /// Number of workers at the end.
    pub world_size: Option<usize>,
    /// Workers for each core of the fullest host at the end, at least 1.
    pub workers_per_core: Option<f64>,
    /// Transport between the workers.
    pub transport: Option<String>,
    /// Number of trained parameters of the model.
    pub parameters: Option<f64>,
    /// Number of completed steps.
    pub steps: Option<usize>,
    /// Number of steps that changed nothing because they overflowed.
    pub skipped_steps: Option<usize>,
    /// Seconds from the start to the end.
    pub train_seconds: Option<f64>,
    /// The largest peak memory of any worker.
    pub peak_rss_bytes: Option<f64>,
    /// Mean loss of the last epoch.
    pub train_loss: Option<f64>,
    /// Scores of each class, if the run has trained a classifier.
    pub classification: Option<Classification>,
    /// Hash of the trained weights.
    pub weights_sha256: Option<String>,
    /// Warnings to the user during the run.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// All other fields: the names of speed and scores depend on the run.
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
}

impl Summary {
    /// Returns the metrics of the model on the test samples, such as `accuracy`.
    pub fn scores(&self) -> impl Iterator<Item = (&str, f64)> {
        self.others.iter().filter_map(|(name, value)| Some((name.strip_prefix("test_")?, value.as_f64()?)))
    }
}

/// Reads the summary of a run; returns `None` if the run is not complete.
pub(crate) fn read(folder: &Path) -> Result<Option<Summary>, Error> {
    let path = folder.join(SUMMARY);
    let text = match kolo_durable::read_to_string(&path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|source| Error::Read { path: path.clone(), source })?,
    };
    let summary = serde_json::from_str::<Summary>(&text);
    let summary = summary.map_err(|e| Error::line(&path, e.line().max(1), lines::problem(&e)))?;
    let checked = summary.classification.as_ref().map_or(Ok(()), Classification::check);
    checked.map_err(|problem| Error::content(&path, problem))?;
    Ok(Some(summary))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()).unwrap(), None);
        let write = |text: &str| std::fs::write(folder.path().join(SUMMARY), text).unwrap();
        write("{\"world_size\": 2, \"test_accuracy\": 0.9, \"images_per_second\": 100.0}");
        let summary = read(folder.path()).unwrap().unwrap();
        assert_eq!(summary.world_size, Some(2));
        assert_eq!(summary.scores().collect::<Vec<_>>(), [("accuracy", 0.9)]);
        write("{\"world_size\": 2,\n \"warnings\": 3}");
        let error = read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("summary.json line 2: ") && !error.contains(" at line 2"), "{error}");
        write(
            "{\"classification\": {\"part\": \"test\", \"most_wrong\": [], \"classes\": [{\"class\": \"cat\", \
             \"samples\": 1, \"precision\": 1, \"recall\": 1, \"f1\": 1, \"predicted\": \
             {\"0\": 18446744073709551615, \"1\": 18446744073709551615}}]}}",
        );
        let error = read(folder.path()).unwrap_err().to_string();
        let words =
            "summary.json: classification.classes[0].samples is 1, less than the sum of predicted; take";
        assert!(error.contains(words), "{error}");
    }
}
