//! Types of a finding and of an entry of the table of checks.

use serde::{Deserialize, Serialize};

use crate::facts::Facts;

/// Importance of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The run would fail, or be useless.
    Error,
    /// The run would lose time, accuracy, or the same bits.
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

/// A problem of a job that is about to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the check.
    pub check: &'static str,
    /// Importance.
    pub severity: Severity,
    /// The problem, with figures.
    pub what: String,
    /// The reason why it matters.
    pub why: String,
    /// Advice to the user.
    pub remedy: String,
}

/// A finding without its check's name: severity, what, why, remedy.
pub(super) type Found = (Severity, String, String, String);

/// Entry of the table of checks.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Name of the check.
    pub name: &'static str,
    /// One line about what it looks for.
    pub about: &'static str,
    /// Looks for the problem. A pure function of the facts.
    pub(super) find: fn(&Facts) -> Option<Found>,
}

impl Check {
    /// Runs the check.
    pub fn find(&self, facts: &Facts) -> Option<Finding> {
        let (severity, what, why, remedy) = (self.find)(facts)?;
        Some(Finding { check: self.name, severity, what, why, remedy })
    }
}
