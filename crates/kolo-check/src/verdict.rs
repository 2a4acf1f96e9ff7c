//! The verdict on a job, and the exit code.

use std::path::Path;

use kolo_check::{Report, Severity, text};
use kolo_comm::schedule::words::counted;
use serde::{Deserialize, Serialize};

use kolo::Failure;
use kolo_program::output::print;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    worst: Option<Severity>,
    /// The findings, in a few words.
    summary: String,
    words: String,
}

impl Verdict {
    /// Makes the verdict of a report, as text or as JSON.
    /// Fails if JSON cannot express a figure.
    pub(crate) fn of(report: &Report, json: bool) -> Result<Verdict, Failure> {
        let (worst, summary) = (report.worst(), report.summary());
        let words = match json {
            true => serde_json::to_string_pretty(report).map_err(Failure::work)? + "\n",
            false => format!("{}{}{summary}\n", looked_at(report), text(&report.findings)),
        };
        Ok(Verdict { worst, summary, words })
    }

    /// Writes the verdict for the process that started the workers.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Failure> {
        let told = serde_json::to_vec(self).map_err(Failure::work)?;
        std::fs::write(path, told).map_err(|e| Failure::work(format!("{}: {e}", path.display())))
    }

    /// Reads the verdict that a worker wrote.
    pub(crate) fn read(path: &Path) -> Result<Verdict, Failure> {
        let told = std::fs::read(path).map_err(|e| Failure::work(format!("{}: {e}", path.display())))?;
        serde_json::from_slice(&told)
            .map_err(|e| Failure::work(format!("no worker has reported what it found: {e}")))
    }

    /// Prints the verdict.
    pub(crate) fn print(&self) -> Result<(), Failure> {
        print(&self.words)
    }

    /// Returns the findings in a few words, for a launcher that reports the end of a worker.
    pub(crate) fn summary(&self) -> &str {
        &self.summary
    }

    /// Returns 0 if nothing stands in the way, 3 for warnings, 4 for errors. 1 and 2 mean, as for every
    /// command, that it could not do its work or had wrong input.
    pub(crate) fn exit_code(&self) -> u8 {
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
        kolo_check::CHECKS.len()
    )
}
