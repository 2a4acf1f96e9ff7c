//! The findings of each run.

use kolo_run_folder::Run;

use super::section::{Section, paragraph, with_code};
use crate::analysis::Pace;
use crate::findings::{Finding, Severity};
use crate::html::{Element, Html, element};

pub(super) fn section(found: &[(Run, Vec<Finding>)]) -> Section {
    let mut body = Html::default();
    // One level below the run's name if there are several runs.
    let heading = if found.len() > 1 { "h4" } else { "h3" };
    for (run, findings) in found {
        if found.len() > 1 {
            body.push(element("h3").add(run.name.as_str()));
        }
        if findings.is_empty() {
            body.push(paragraph(nothing(run)).with("class", "nothing"));
        }
        body.push(findings.iter().map(|finding| card(finding, heading)).collect::<Html>());
        if !run.remarks.is_empty() {
            let remarks: Html = run.remarks.iter().map(|remark| element("li").add(remark.as_str())).collect();
            body.push(element("p").with("class", "remarks").add("What is missing or incomplete:"));
            body.push(element("ul").with("class", "remarks").add(remarks));
        }
    }
    Section { id: "findings", title: "Findings", body }
}

/// Returns the text for no findings; a run with too few steps has none either.
fn nothing(run: &Run) -> &'static str {
    match Pace::of(run) {
        None => "Nothing stands out, but there are too few steps to tell.",
        Some(_) => "Nothing stands out.",
    }
}

fn card(finding: &Finding, heading: &'static str) -> Element {
    let class = match finding.severity {
        Severity::Error => "finding problem",
        Severity::Warning => "finding warning",
        Severity::Notice => "finding notice",
    };
    let badge = element("span").with("class", "badge").add(word(finding.severity));
    let remedy = element("p").add(element("strong").add("What to do: ")).add(with_code(&finding.remedy));
    element("article")
        .with("class", class)
        .add(element(heading).add(badge).add(" ").add(finding.what.as_str()))
        .add(paragraph(&finding.why))
        .add(remedy)
}

/// Returns the severity as a word about a run that has been.
pub(crate) fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "Problem",
        Severity::Warning => "Warning",
        Severity::Notice => "Notice",
    }
}
