//! Steps that changed nothing.

use kolo_run_folder::Run;

use super::finding::{Entry, Found, Severity};
use crate::units::{percent, plural};

pub(super) const ENTRY: Entry<Run> =
    Entry { name: "skipped steps", about: "steps that overflowed and changed nothing", find };

fn find(run: &Run) -> Option<Found> {
    let seen = run.steps.iter().filter(|step| step.skipped).count();
    let summed_up = run.summary.as_ref().and_then(|summary| summary.skipped_steps).unwrap_or(0);
    let skipped = seen.max(summed_up);
    if skipped == 0 {
        return None;
    }
    let share = skipped as f64 / run.steps.len().max(skipped) as f64;
    let last = run.steps.iter().rev().find(|step| step.skipped);
    let last = last.map(|step| format!(" The last one is step {}.", step.step)).unwrap_or_default();
    // The first skipped steps find the loss scale.
    let severity = if share > 0.05 { Severity::Warning } else { Severity::Notice };
    Some((
        severity,
        format!(
            "{} changed nothing, because {} overflowed",
            plural(skipped, "step"),
            if skipped == 1 { "it" } else { "they" }
        ),
        format!("That is {} of the steps in f16.{last}", percent(share)),
        "Some at the beginning are usual: they find the loss scale. If they go on, begin with a \
                 smaller --loss-scale, clip gradients (--clip-norm) or compute in bf16 (--precision bf16), \
                 which does not overflow so."
            .into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn skipped_steps_are_counted() {
        let mut run = example::run(100);
        for step in [3, 4, 70] {
            (run.steps[step].skipped, run.steps[step].loss) = (true, None);
        }
        let finding = ENTRY.find(&run).unwrap();
        assert!(finding.severity == Severity::Notice && finding.what.starts_with("3 steps"), "{finding:?}");
        assert!(
            finding.why.contains("3 % of the steps") && finding.why.contains("step 70"),
            "{}",
            finding.why
        );
        run.summary.as_mut().unwrap().skipped_steps = Some(20);
        assert_eq!(ENTRY.find(&run).unwrap().severity, Severity::Warning, "islands skip for themselves");
    }
}
