//! A learning rate that does not follow a large batch.

use kolo_report::units::{count, number};

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check = Check {
    name: "batch scaling",
    about: "a large global batch whose learning rate has not been scaled",
    find,
};

/// Batch size and learning rate from which Goyal et al. 2017 scale (section 5.1).
const BASE: (f64, f64) = (256.0, 0.1);

/// Ratio to the base batch from which a batch is large: it has four times fewer steps.
const LARGE: f64 = 4.0;

/// Share of the scaled learning rate below which a rate counts as not scaled.
const LOW: f64 = 0.5;

fn find(facts: &Facts) -> Option<Found> {
    let (settings, batch) = (&facts.settings, facts.settings.batch.global);
    let times = batch as f64 / BASE.0;
    let scaled = BASE.1 * times;
    if settings.optimizer != "sgd"
        || settings.rate.is_scaled
        || times < LARGE
        || settings.rate.top > LOW * scaled
    {
        return None;
    }
    Some((
        Severity::Warning,
        format!("the learning rate is {} for a global batch of {}", number(settings.rate.top), count(batch)),
        format!(
            "A batch k times as large has k times fewer steps, and takes a rate k times as large (Goyal et al. 2017, section 2.1): {} here, \
             from {} for {}. ResNet-50 on batches of 8,192 had 41.67 % errors without and 23.74 % with it (their table 2); this \
             project's small network on batches of 1,024 86.6 % and 89.3 % test accuracy (docs/large-batches.md).",
            number(scaled),
            BASE.1,
            BASE.0
        ),
        "Add --scale-lr --base-batch 256 --warmup-epochs 5 with the --lr of small batches, or give the rate that you have found to be \
         good for this batch with --scale-lr and this batch as --base-batch."
            .into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn the_rule_is_for_large_batches_and_sgd() {
        let mut facts = example::one_host(2);
        facts.settings.batch.global = 1_000;
        assert_eq!(find(&facts), None);
        facts.settings.batch.global = 2_048;
        let (_, what, why, _) = find(&facts).unwrap();
        assert_eq!(what, "the learning rate is 0.1 for a global batch of 2,048");
        assert!(why.contains("0.8 here, from 0.1 for 256"), "{why}");
        facts.settings.rate.top = 0.5;
        assert_eq!(find(&facts), None, "it was raised");
        facts.settings.rate.top = 0.1;
        facts.settings.rate.is_scaled = true;
        assert_eq!(find(&facts), None);
        facts.settings.rate.is_scaled = false;
        facts.settings.optimizer = "lamb".into();
        assert_eq!(find(&facts), None);
    }
}
