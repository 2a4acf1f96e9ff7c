//! Checkpoints that are too rare.

use kolo_report::units::{count, plural, seconds};

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check =
    Check { name: "checkpoint interval", about: "more than an hour of work between two checkpoints", find };

/// Maximum work that may be lost, in seconds.
const MOST: f64 = 3600.0;

fn find(facts: &Facts) -> Option<Found> {
    let (work, step) = (facts.settings.work?, facts.step_seconds()?);
    let steps = facts.settings.checkpoints.interval(&work);
    let lost = steps as f64 * step;
    if lost < MOST {
        return None;
    }
    let what = match steps >= work.steps {
        true => format!("there is no checkpoint before the end of the run, in about {}", seconds(lost)),
        false => format!(
            "a checkpoint is written every {}, about every {}",
            plural(steps as usize, "step"),
            seconds(lost)
        ),
    };
    Some((
        Severity::Warning,
        what,
        format!(
            "A step computes for {} here. When all workers end at once (power, a job's time limit, a fault in the program) what they have \
             done since the last checkpoint is lost.",
            seconds(step)
        ),
        format!(
            "Give --checkpoint-steps {}, about a quarter of an hour.",
            count(((MOST / 4.0 / step) as usize).max(1))
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn an_hour_is_too_much() {
        let mut facts = example::one_host(2);
        (0..2).for_each(|rank| example::trial(&mut facts, rank).shard_seconds = 20.0);
        // 157 steps per epoch.
        assert_eq!(find(&facts), None);
        facts.settings.checkpoints.epochs = 2;
        assert_eq!(find(&facts).unwrap().1, "a checkpoint is written every 314 steps, about every 105 min");
        facts.settings.checkpoints.epochs = 9;
        let (_, what, _, remedy) = find(&facts).unwrap();
        assert!(
            what.starts_with("there is no checkpoint before the end of the run")
                && remedy.contains("--checkpoint-steps 44")
        );
        facts.settings.checkpoints.steps = Some(100);
        assert_eq!(find(&facts), None);
    }
}
