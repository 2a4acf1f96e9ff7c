//! What a finding is, and what the table has of each.

use kolo_run_folder::Run;

/// The share of time from which waiting is looked into: one for all, so that what limits a run has one cause.
pub(super) const LEAST_WAITING: f64 = 0.1;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It limits the run, or its result is in doubt.
    Problem,
    /// It costs something.
    Warning,
    /// It is good to know.
    Notice,
}

impl Severity {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Problem => "Problem",
            Severity::Warning => "Warning",
            Severity::Notice => "Notice",
        }
    }

    /// By the share of the run's time that is lost.
    pub(super) fn of_share(share: f64) -> Self {
        match share {
            _ if share >= 0.2 => Severity::Problem,
            _ if share >= 0.05 => Severity::Warning,
            _ => Severity::Notice,
        }
    }
}

/// Something that stands out in a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// What it is, in a sentence.
    pub headline: String,
    /// From which figures that is seen.
    pub why: String,
    /// What to do.
    pub remedy: String,
}

/// One thing that may stand out.
#[derive(Clone, Copy, Debug)]
pub struct FindingEntry {
    /// Its name.
    pub name: &'static str,
    /// One line that says what is looked for.
    pub about: &'static str,
    /// Whether it is about what workers wait for, so that nothing is to be found where there is one.
    pub among_workers: bool,
    /// Looks for it. Pure: the same run has the same findings.
    pub find: fn(&Run) -> Option<Finding>,
}
