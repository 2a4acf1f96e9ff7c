//! Types of a finding and of its entry in the table.

use kolo_run_folder::Run;

/// Minimum share of time spent waiting. All findings use the same, so that one of them names the cause.
pub(super) const LEAST_WAITING: f64 = 0.1;

/// Importance of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It limits the run, or its result is in doubt.
    Problem,
    /// It has a cost.
    Warning,
    /// It is worth knowing.
    Notice,
}

impl Severity {
    /// Returns the severity as a word.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Problem => "Problem",
            Severity::Warning => "Warning",
            Severity::Notice => "Notice",
        }
    }

    /// Returns the severity for the share of the run's time that is lost.
    pub(super) fn of_share(share: f64) -> Self {
        match share {
            _ if share >= 0.2 => Severity::Problem,
            _ if share >= 0.05 => Severity::Warning,
            _ => Severity::Notice,
        }
    }
}

/// A property of a run that the user should know about.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Importance.
    pub severity: Severity,
    /// Finding in one sentence.
    pub headline: String,
    /// Figures that it is derived from.
    pub why: String,
    /// Advice to the user.
    pub remedy: String,
}

/// Entry of the table of findings.
#[derive(Clone, Copy, Debug)]
pub struct FindingEntry {
    /// Name of the finding.
    pub name: &'static str,
    /// One line about what it looks for.
    pub about: &'static str,
    /// True if it is about waiting for other workers, and cannot apply to a run with one worker.
    pub among_workers: bool,
    /// Looks for it in a run. A pure function.
    pub find: fn(&Run) -> Option<Finding>,
}
