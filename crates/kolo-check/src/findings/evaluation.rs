//! Evaluation that takes a large part of the run.

use kolo_report::units::{count, percent, plural};

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check =
    Check { name: "evaluation", about: "tests that take a quarter of the run or more", find };

/// Cost of a test sample relative to a training sample: a forward pass, without a backward pass of twice
/// that.
const FORWARD: f64 = 1.0 / 3.0;

/// Share of the computing from which a finding is due.
const MUCH: f64 = 0.25;

fn find(facts: &Facts) -> Option<Found> {
    let work = facts.settings.work?;
    // Each epoch that has begun is tested once.
    let epochs = work.steps.div_ceil(work.epoch_steps) as f64;
    let trained = (work.steps as f64 * facts.settings.batch.global as f64).min(epochs * work.samples as f64);
    let tested = FORWARD * epochs * work.test_samples as f64;
    let part = tested / (tested + trained);
    (part >= MUCH).then(|| {
        (
            Severity::Notice,
            format!("tests take about {} of the computing", percent(part)),
            format!(
                "After each epoch, which has {}, the model is tested on {}; the run trains on {} in all.",
                plural(work.epoch_steps.min(work.steps) as usize, "step"),
                plural(work.test_samples, "sample"),
                count(trained as usize)
            ),
            "That is what small data costs. For trials raise --steps; for a model of your own give `evaluate` fewer samples.".into(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn a_short_run_is_mostly_its_test() {
        let mut facts = example::one_host(2);
        assert_eq!(find(&facts), None);
        example::work(&mut facts).steps = 10;
        // 640 samples for training, 2,000 for tests.
        assert!(find(&facts).unwrap().1.contains("51 %"), "{:?}", find(&facts));
    }
}
