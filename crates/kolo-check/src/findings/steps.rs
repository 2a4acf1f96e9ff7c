//! A step limit that does not match the epochs, and batches larger than the data.

use kolo_report::units::{count, percent, plural};

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check = Check {
    name: "steps",
    about: "a limit of steps beyond the epochs or below one, or a batch larger than the data",
    find,
};

fn find(facts: &Facts) -> Option<Found> {
    let (work, batch) = (facts.settings.work?, facts.settings.batch.global);
    let samples = plural(work.samples, "sample");
    if batch > work.samples {
        return Some((
            Severity::Warning,
            format!("the global batch of {} is larger than the {samples} of the training data", count(batch)),
            "An epoch is one step, of all samples, whose shards are smaller than asked for; a run of a few epochs has as few updates.".into(),
            "Give fewer or smaller shards (--shards, --batch-size).".into(),
        ));
    }
    let limit = work.step_limit?;
    if limit > work.planned_steps {
        return Some((
            Severity::Notice,
            format!(
                "the run ends after {}, with its {}, and not after the {} of --steps",
                plural(work.planned_steps as usize, "step"),
                plural(work.epochs, "epoch"),
                count(limit as usize)
            ),
            format!(
                "Whichever comes first ends it; an epoch has {}.",
                plural(work.epoch_steps as usize, "step")
            ),
            format!(
                "Give --epochs {} for as many steps, or leave --steps out.",
                limit.div_ceil(work.epoch_steps)
            ),
        ));
    }
    let seen = work.steps as f64 * batch as f64 / work.samples as f64;
    (work.steps < work.epoch_steps).then(|| {
        (
            Severity::Notice,
            format!("the run sees {} of the samples once, the others never", percent(seen)),
            format!(
                "It ends after {}, and an epoch has {}.",
                plural(work.steps as usize, "step"),
                count(work.epoch_steps as usize)
            ),
            "Raise --steps, if this is no trial.".into(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn limits_that_do_not_fit_are_reported() {
        let mut facts = example::one_host(2);
        example::work(&mut facts).step_limit = Some(5_000);
        assert!(find(&facts).unwrap().3.contains("--epochs 32"), "{:?}", find(&facts));
        let work = example::work(&mut facts);
        (work.step_limit, work.steps) = (Some(50), 50);
        assert_eq!(find(&facts).unwrap().1, "the run sees 32 % of the samples once, the others never");
        let work = example::work(&mut facts);
        (work.step_limit, work.steps) = (Some(200), 200);
        assert_eq!(find(&facts), None);
        facts.settings.batch.global = 16_384;
        assert!(find(&facts).unwrap().1.starts_with("the global batch of 16,384 is larger"));
    }
}
