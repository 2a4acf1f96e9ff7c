//! Types of a finding, about a run or about a job that is about to run, and of its entry in a table.

use serde::{Deserialize, Serialize};

/// Minimum share of time spent waiting. All findings use the same, so that one of them names the cause.
pub(super) const LEAST_WAITING: f64 = 0.1;

/// Importance of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The run would fail or be useless, it is limited, or its result is in doubt.
    Error,
    /// The run loses time, accuracy, or the same bits.
    Warning,
    /// It is worth knowing.
    Notice,
}

impl Severity {
    /// Returns the severity as a word.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Notice => "notice",
        }
    }
}

/// Returns the severity for the share of the run's time that is lost.
pub(super) fn of_share(share: f64) -> Severity {
    match share {
        _ if share >= 0.2 => Severity::Error,
        _ if share >= 0.05 => Severity::Warning,
        _ => Severity::Notice,
    }
}

/// A property of a run or of a job that the user should know about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of its entry.
    pub check: &'static str,
    /// Importance.
    pub severity: Severity,
    /// The finding in one sentence, with figures.
    pub what: String,
    /// Figures that it is derived from, and the reason why it matters.
    pub why: String,
    /// Advice to the user.
    pub remedy: String,
}

/// A finding without its entry's name: severity, what, why, remedy.
pub type Found = (Severity, String, String, String);

/// Entry of a table of findings about a subject.
#[derive(Debug)]
pub struct Entry<S: 'static> {
    /// Name of the finding.
    pub name: &'static str,
    /// One line about what it looks for.
    pub about: &'static str,
    /// Looks for it. A pure function of the subject.
    pub find: fn(&S) -> Option<Found>,
}

impl<S> Entry<S> {
    /// Looks for the finding.
    pub fn find(&self, subject: &S) -> Option<Finding> {
        let (severity, what, why, remedy) = (self.find)(subject)?;
        Some(Finding { check: self.name, severity, what, why, remedy })
    }
}

/// Returns the findings of a table about a subject, the most severe first.
pub fn search<S>(table: &[Entry<S>], subject: &S) -> Vec<Finding> {
    let mut found: Vec<Finding> = table.iter().filter_map(|entry| entry.find(subject)).collect();
    found.sort_by_key(|finding| finding.severity);
    found
}
