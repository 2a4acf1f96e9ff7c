//! How findings are told.

use serde::Serialize;

use crate::facts::Facts;
use crate::findings::{Finding, Severity, findings};

/// What was found, and from which facts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// What matters most first.
    pub findings: Vec<Finding>,
    /// What was looked at.
    pub facts: Facts,
}

impl Report {
    /// Runs all checks.
    pub fn of(facts: Facts) -> Report {
        Report { findings: findings(&facts), facts }
    }

    /// The severity of what matters most.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).min()
    }

    /// How many there are of each severity, in words.
    pub fn summary(&self) -> String {
        let count = |severity| self.findings.iter().filter(|found| found.severity == severity).count();
        let all = [Severity::Error, Severity::Warning, Severity::Notice]
            .map(|severity| (severity, count(severity)));
        let words = all.into_iter().filter(|(_, count)| *count > 0).map(|(severity, count)| {
            format!("{count} {}{}", severity.name(), if count == 1 { "" } else { "s" })
        });
        match words.collect::<Vec<_>>() {
            words if words.is_empty() => "nothing stands out".into(),
            words => words.join(", "),
        }
    }
}

/// Findings as people read them: what, why, what to do, a line each.
pub fn text(findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        let Finding { check, severity, what, why, remedy } = finding;
        format!("{} ({check}): {what}\n    {why}\n    -> {remedy}\n", severity.name())
    };
    findings.iter().map(line).collect()
}
