//! A learning rate whose schedule is longer than the run.

use kolo_report::units::{count, percent, plural};

use super::{Check, Found, Severity};
use crate::facts::Facts;
use crate::settings::Schedule;

pub(super) const CHECK: Check =
    Check { name: "schedule", about: "a run that ends before its learning rate has fallen", find };

/// Share of its top that the learning rate of a schedule to 0 should fall below.
const FALLEN: f64 = 0.1;

fn find(facts: &Facts) -> Option<Found> {
    let (work, rate) = (facts.settings.work?, &facts.settings.rate);
    match rate.schedule {
        Schedule::ToZero if work.steps < work.planned_steps && work.last_rate > FALLEN * rate.top => Some((
            Severity::Warning,
            format!(
                "the run ends after {} of the {} over which its learning rate falls, at {} of it",
                count(work.steps as usize),
                plural(work.planned_steps as usize, "step"),
                percent(work.last_rate / rate.top)
            ),
            "The schedule goes over --epochs, whatever --steps says. Loss falls most while the rate does, and that part is cut off.".into(),
            format!(
                "Give the epochs that the run has, so without --steps (an epoch has {}); or --schedule constant.",
                plural(work.epoch_steps as usize, "step")
            ),
        )),
        Schedule::Step { epochs } if work.steps <= epochs as u64 * work.epoch_steps => Some((
            Severity::Warning,
            format!(
                "the learning rate is cut every {}, and the run has no more: {} of {} an epoch",
                plural(epochs, "epoch"),
                plural(work.steps as usize, "step"),
                count(work.epoch_steps as usize)
            ),
            "It is never cut, so the run ends at its full rate, as with --schedule constant. Loss falls most after a cut.".into(),
            "Give --lr-step-epochs a third of --epochs, or --schedule cosine.".into(),
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn a_run_that_is_cut_short_keeps_its_rate() {
        let mut facts = example::one_host(2);
        let work = example::work(&mut facts);
        (work.steps, work.last_rate) = (300, 0.087);
        let (_, what, ..) = find(&facts).unwrap();
        assert_eq!(
            what,
            "the run ends after 300 of the 1,256 steps over which its learning rate falls, at 87 % of it"
        );
        example::work(&mut facts).last_rate = 0.009;
        assert_eq!(find(&facts), None);
        facts.settings.rate.schedule = Schedule::Constant;
        example::work(&mut facts).last_rate = 0.1;
        assert_eq!(find(&facts), None);
    }

    #[test]
    fn cuts_after_the_end_are_none() {
        let mut facts = example::one_host(2);
        facts.settings.rate.schedule = Schedule::Step { epochs: 30 };
        assert!(find(&facts).unwrap().1.starts_with("the learning rate is cut every 30 epochs"));
        facts.settings.rate.schedule = Schedule::Step { epochs: 3 };
        assert_eq!(find(&facts), None);
    }
}
