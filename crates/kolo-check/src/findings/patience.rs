//! A patience that is longer than the run.

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check =
    Check { name: "patience", about: "--patience that cannot end the run early", find };

fn find(facts: &Facts) -> Option<Found> {
    let patience = facts.settings.patience?;
    let work = facts.settings.work?;
    let epochs = work.steps.div_ceil(work.epoch_steps) as usize;
    (patience >= epochs).then(|| {
        (
            Severity::Warning,
            format!(
                "--patience {patience} cannot end a run of {epochs} epoch{}",
                if epochs == 1 { "" } else { "s" }
            ),
            "It ends the run when so many epochs have passed since the best one, and there are no more."
                .into(),
            match epochs {
                0 | 1 => "Train more epochs, or leave --patience out.".into(),
                _ => format!("Give more --epochs, or --patience below {epochs}."),
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn epochs_that_are_begun_count() {
        let mut facts = example::one_host(2);
        facts.settings.patience = Some(7);
        assert_eq!(find(&facts), None);
        example::work(&mut facts).steps = 400;
        assert_eq!(find(&facts).unwrap().1, "--patience 7 cannot end a run of 3 epochs");
    }
}
