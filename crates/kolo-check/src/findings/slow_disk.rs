//! Checkpoints that are due faster than the disk can write them.

use kolo_report::units::{bytes, seconds};

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check = Check {
    name: "slow disk",
    about: "checkpoints that take longer to write than the steps between them",
    find,
};

fn find(facts: &Facts) -> Option<Found> {
    let disk = facts.ranks.first()?.folder.disk.as_ref()?.as_ref().ok()?;
    let (model, work, step) = (facts.model()?, facts.settings.work?, facts.step_seconds()?);
    let steps = facts.settings.checkpoints.interval(&work);
    let (writing, between) = (model.checkpoint_bytes as f64 / disk.write_rate, steps as f64 * step);
    if writing < between {
        return None;
    }
    Some((
        Severity::Warning,
        format!(
            "a checkpoint takes {} to write, and one is due every {}",
            seconds(writing),
            seconds(between)
        ),
        format!(
            "Its {} go to a disk that takes {} a second; {steps} step{} of {} lie between two. Checkpoints are written in the background, \
             one after another: training would wait for the disk, or checkpoints be left out.",
            bytes(model.checkpoint_bytes as f64),
            bytes(disk.write_rate),
            if steps == 1 { "" } else { "s" },
            seconds(step)
        ),
        "Write them more rarely (--checkpoint-steps, --checkpoint-epochs), or to a faster disk (--out)."
            .into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn writing_is_compared_with_the_steps_between_checkpoints() {
        let mut facts = example::one_host(2);
        facts.settings.checkpoints.steps = Some(2);
        facts.ranks[0].folder.disk.as_mut().unwrap().as_mut().unwrap().write_rate = 32e6;
        let (_, what, why, _) = find(&facts).unwrap();
        assert_eq!(what, "a checkpoint takes 20 ms to write, and one is due every 16.4 ms");
        assert!(why.contains("2 steps of 8.2 ms"), "{why}");
        facts.settings.checkpoints.steps = Some(3);
        assert_eq!(find(&facts), None);
    }
}
