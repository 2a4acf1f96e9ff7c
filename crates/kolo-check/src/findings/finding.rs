//! What a finding is, and what the table has of each check.

use serde::{Deserialize, Serialize};

use crate::facts::Facts;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The run would fail, or come to nothing.
    Error,
    /// It costs time or accuracy, or the same bits.
    Warning,
    /// It is good to know.
    Notice,
}

impl Severity {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Notice => "notice",
        }
    }
}

/// Something that stands out in a job that is about to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the check that has found it.
    pub check: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What is so, with figures.
    pub what: String,
    /// Why that matters.
    pub why: String,
    /// What to do.
    pub remedy: String,
}

/// A finding before the table has put its check's name to it: severity, what, why, what to do.
pub(super) type Found = (Severity, String, String, String);

/// One thing that is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Its name.
    pub name: &'static str,
    /// One line that says what is looked for.
    pub about: &'static str,
    /// Looks for it. Pure: the same facts have the same findings.
    pub(super) find: fn(&Facts) -> Option<Found>,
}

impl Check {
    /// Looks for it.
    pub fn find(&self, facts: &Facts) -> Option<Finding> {
        let (severity, what, why, remedy) = (self.find)(facts)?;
        Some(Finding { check: self.name, severity, what, why, remedy })
    }
}
