//! A warm-up that is missing, or takes most of the run.

use kolo_report::units::{count, percent, plural};

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check = Check {
    name: "warm-up",
    about: "a large batch without warm-up, or a warm-up that takes half of the run or more",
    find,
};

/// Global batch from which the first steps need a smaller rate: four times the 256 of Goyal et al. 2017.
const LARGE: usize = 1024;

/// Share of the run from which a warm-up is too long.
const MOST: f64 = 0.5;

fn find(facts: &Facts) -> Option<Found> {
    let (warmup, batch) = (facts.settings.rate.warmup_steps, facts.settings.batch.global);
    if warmup == 0 && batch >= LARGE && !facts.settings.resumes {
        return Some((
            Severity::Warning,
            format!("there is no warm-up with a global batch of {}", count(batch)),
            "That several small steps are as one large one holds only while the weights move little, which at the beginning they do not: \
             ResNet-50 with batches of 8,192 had 24.84 % errors without and 23.74 % with five epochs of warm-up (Goyal et al. 2017, \
             table 2)."
                .into(),
            "Give --warmup-epochs 5, or a tenth of a short run.".into(),
        ));
    }
    let steps = facts.settings.work?.steps;
    let part = warmup as f64 / steps as f64;
    if part < MOST {
        return None;
    }
    let what = match part {
        _ if part > 1.0 => format!(
            "the learning rate rises for {}, and the run has {}: it comes to {} of its rate",
            plural(warmup as usize, "step"),
            count(steps as usize),
            percent(1.0 / part)
        ),
        _ => format!(
            "the learning rate rises for {} of the {}",
            count(warmup as usize),
            plural(steps as usize, "step")
        ),
    };
    Some((
        Severity::Warning,
        what,
        "Most of the run goes by at a fraction of the rate. The default of 100 steps is meant for epochs of hundreds of steps.".into(),
        "Give --warmup-steps or --warmup-epochs, about a tenth of the run.".into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn large_batches_need_one_and_short_runs_a_short_one() {
        let mut facts = example::one_host(2);
        example::work(&mut facts).steps = 80;
        assert_eq!(
            find(&facts).unwrap().1,
            "the learning rate rises for 100 steps, and the run has 80: it comes to 80 % of its rate"
        );
        example::work(&mut facts).steps = 150;
        assert_eq!(find(&facts).unwrap().1, "the learning rate rises for 100 of the 150 steps");
        example::work(&mut facts).steps = 201;
        assert_eq!(find(&facts), None);
        facts.settings.rate.warmup_steps = 0;
        assert_eq!(find(&facts), None);
        facts.settings.batch.global = 1024;
        assert!(find(&facts).unwrap().1.contains("no warm-up with a global batch of 1,024"));
    }
}
