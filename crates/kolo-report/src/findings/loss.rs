//! A loss that does not fall.

use kolo_run_folder::{Run, mean};

use super::finding::{Entry, Found, Severity};
use crate::units::{number, plural};

pub(super) const ENTRY: Entry<Run> =
    Entry { name: "loss", about: "a loss that does not fall from the first steps to the last", find };

const LEAST_STEPS: usize = 100;

/// Ratio of the last loss to the first from which the loss has not fallen.
const STILL: f64 = 0.98;

fn find(run: &Run) -> Option<Found> {
    let steps = &run.steps;
    if steps.len() < LEAST_STEPS {
        return None;
    }
    let part = steps.len() / 10;
    let of = |range: std::ops::Range<usize>| mean(steps[range].iter().filter_map(|step| step.loss));
    let (first, last) = (of(0..part)?, of(steps.len() - part..steps.len())?);
    // The ratio means nothing for a loss below 0, which is no cross entropy.
    if first <= 0.0 || last < STILL * first {
        return None;
    }
    let grows = last > 1.1 * first;
    Some((
        if grows { Severity::Error } else { Severity::Warning },
        format!("The loss {}", if grows { "grows" } else { "does not fall" }),
        format!(
            "It is {} over the first {} and {} over the last ones.",
            number(first),
            plural(part, "step"),
            number(last)
        ),
        "Try a learning rate that is ten times smaller, and one that is ten times larger (--lr), \
                 with --warmup-steps; look at whether labels belong to their samples."
            .into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn a_loss_that_stays_or_grows_stands_out() {
        let mut run = example::run(200);
        run.steps.iter_mut().for_each(|step| step.loss = Some(2.3));
        assert_eq!(ENTRY.find(&run).unwrap().what, "The loss does not fall");
        run.steps.iter_mut().for_each(|step| step.loss = Some(1.0 + step.step as f64));
        let finding = ENTRY.find(&run).unwrap();
        assert!(finding.severity == Severity::Error && finding.why.contains("first 20 steps"), "{finding:?}");
        run.steps.truncate(50);
        assert_eq!(ENTRY.find(&run), None);
    }
}
