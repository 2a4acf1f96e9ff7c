//! An existing run with the same settings.

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check =
    Check { name: "seed", about: "a run with the same settings and the same seed beside this one", find };

fn find(facts: &Facts) -> Option<Found> {
    let (run, seed) = (facts.settings.same_run.as_ref()?, facts.settings.seed);
    Some((
        Severity::Notice,
        format!("{} has the same settings and the same seed, {seed}", run.display()),
        "A seed decides weights, order and augmentation, so this run ends in the same bits as that one, whatever the number of workers: \
         it tells nothing about how much results differ by chance."
            .into(),
        format!("Give another seed (--seed {}), if it is not to be repeated.", seed.wrapping_add(1)),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn the_other_run_is_named() {
        let mut facts = example::one_host(2);
        facts.settings.same_run = Some("runs/0001".into());
        assert!(find(&facts).unwrap().1.starts_with("runs/0001 has the same settings"));
    }
}
