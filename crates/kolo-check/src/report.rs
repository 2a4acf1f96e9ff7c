//! Findings as a report and as text.

use kolo_report::units::counted;
use serde::Serialize;

use crate::facts::Facts;
use crate::findings::{Finding, Severity, findings};

/// Findings, and the facts that they come from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Findings, the most severe first.
    pub findings: Vec<Finding>,
    /// Facts of all ranks.
    pub facts: Facts,
}

impl Report {
    /// Runs all checks.
    pub fn of(facts: Facts) -> Report {
        Report { findings: findings(&facts), facts }
    }

    /// Returns the severity of the most severe finding.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).min()
    }

    /// Returns the number of findings of each severity, as text.
    pub fn summary(&self) -> String {
        let count = |severity| self.findings.iter().filter(|found| found.severity == severity).count();
        let all = [Severity::Error, Severity::Warning, Severity::Notice]
            .map(|severity| (severity, count(severity)));
        let counts = all
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(severity, count)| counted(count, severity.name()));
        match counts.collect::<Vec<_>>() {
            counts if counts.is_empty() => "nothing stands out".into(),
            counts => counts.join(", "),
        }
    }
}

/// Formats findings for people: problem, reason and remedy, one line each.
pub fn text(findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        let Finding { check, severity, what, why, remedy } = finding;
        format!("{} ({check}): {what}\n    {why}\n    -> {remedy}\n", severity.name())
    };
    findings.iter().map(line).collect()
}
