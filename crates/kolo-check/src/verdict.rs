//! The verdict on a job, and the exit code.

use std::path::Path;

use kolo_report::units::counted;
use serde::{Deserialize, Serialize};

use crate::findings::{CHECKS, Severity};
use crate::report::{Report, text};

/// Verdict on a job. The worker that found it passes it to the process that started the workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    worst: Option<Severity>,
    /// Findings in a few words, for a launcher that reports the end of a worker.
    pub summary: String,
    /// Whole report for the user, as text or as JSON.
    pub words: String,
}

impl Verdict {
    /// Makes the verdict of a report, as text or as JSON.
    ///
    /// # Errors
    ///
    /// JSON cannot express a figure.
    pub fn of(report: &Report, json: bool) -> Result<Verdict, serde_json::Error> {
        let (worst, summary) = (report.worst(), report.summary());
        let words = match json {
            true => serde_json::to_string_pretty(report)? + "\n",
            false => format!("{}{}{summary}\n", looked_at(report), text(&report.findings)),
        };
        Ok(Verdict { worst, summary, words })
    }

    /// Writes the verdict for the process that started the workers.
    ///
    /// # Errors
    ///
    /// Names the file that cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        let told = serde_json::to_vec(self).map_err(|e| e.to_string())?;
        std::fs::write(path, told).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Reads the verdict that a worker wrote.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or no worker has written a verdict.
    pub fn read(path: &Path) -> Result<Verdict, String> {
        let told = kolo_durable::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
        serde_json::from_slice(&told).map_err(|e| format!("no worker has reported what it found: {e}"))
    }

    /// Returns 0 if nothing stands in the way, 3 for warnings, 4 for errors. 1 and 2 mean, as for every
    /// command, that it could not do its work or had wrong input.
    pub fn exit_code(&self) -> u8 {
        match self.worst {
            None | Some(Severity::Notice) => 0,
            Some(Severity::Warning) => 3,
            Some(Severity::Error) => 4,
        }
    }
}

/// Returns a line about the subject of the checks.
fn looked_at(report: &Report) -> String {
    let facts = &report.facts;
    let links = match facts.links.len() {
        0 => String::new(),
        links => format!(", {} between them measured", counted(links, "link")),
    };
    format!(
        "{} on {}{links}: {} of {} a step, {} checks\n",
        counted(facts.settings.workers(), "worker"),
        counted(facts.nodes, "node"),
        counted(facts.settings.shards(), "shard"),
        facts.settings.batch.shard,
        CHECKS.len()
    )
}
