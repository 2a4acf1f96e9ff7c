//! Warnings of the run that are in no other finding.

use kolo_run_folder::Run;

use super::finding::{Entry, Found, Severity};
use super::straggler::is_about_straggler;
use crate::units::plural;

pub(super) const ENTRY: Entry<Run> =
    Entry { name: "warnings", about: "what `summary.json` keeps of the run's warnings", find };

fn find(run: &Run) -> Option<Found> {
    let warnings = &run.summary.as_ref()?.warnings;
    let others: Vec<&str> =
        warnings.iter().map(String::as_str).filter(|text| !is_about_straggler(text)).collect();
    if others.is_empty() {
        return None;
    }
    Some((
        Severity::Warning,
        format!("The run gave {}", plural(others.len(), "warning")),
        others.join(" — "),
        "Each says what to do about it, where there is something to do.".into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn warnings_are_reported_once() {
        let mut run = example::run(200);
        assert_eq!(ENTRY.find(&run), None);
        let straggler =
            "rank 1 takes 1.6 times as long as the others for a shard: it computes for 0.3 s, they for 0.2 s";
        run.summary.as_mut().unwrap().warnings =
            vec![straggler.into(), "parameter `a` had no gradient".into()];
        let finding = ENTRY.find(&run).unwrap();
        assert_eq!(
            (finding.what.as_str(), finding.why.as_str()),
            ("The run gave 1 warning", "parameter `a` had no gradient")
        );
    }
}
