//! A disk that is too small for the run.

use kolo_report::units::{bytes, plural};

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check = Check {
    name: "disk space",
    about: "a disk that cannot hold the checkpoints and metrics of the run",
    find,
};

/// Maximum number of bytes of a line of `steps.jsonl`.
const LINE: f64 = 400.0;

/// Share of the free space from which a warning is due.
const NARROW: f64 = 0.8;

fn find(facts: &Facts) -> Option<Found> {
    let disk = facts.ranks.first()?.folder.disk.as_ref()?.as_ref().ok()?;
    let (model, work, kept) = (facts.model()?, facts.settings.work?, &facts.settings.checkpoints);
    let written = work.steps.div_ceil(kept.interval(&work));
    // The oldest is removed after the next one is written. Those of a resumed run exist already.
    let standing = if facts.settings.resumes { 1 } else { kept.keep as u64 + 1 };
    let copies = standing.min(written) + if kept.best { 2 } else { 0 };
    let needed = copies as f64 * model.checkpoint_bytes as f64 + LINE * work.steps as f64;
    let free = disk.free as f64;
    if needed <= NARROW * free {
        return None;
    }
    let severity = if needed > free { Severity::Error } else { Severity::Warning };
    Some((
        severity,
        format!(
            "the run writes {}, and {} is free at {}",
            bytes(needed),
            bytes(free),
            facts.settings.folder.display()
        ),
        format!(
            "That is {} of {} at once and a line for each of {}. A full disk does not end a training, but what cannot \
             be written is lost, and a run without its last checkpoint is not complete.",
            plural(copies as usize, "checkpoint"),
            bytes(model.checkpoint_bytes as f64),
            plural(work.steps as usize, "step")
        ),
        "Make room, name a folder on a larger disk (--out), or keep fewer checkpoints (--keep-checkpoints)."
            .into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn checkpoints_that_stand_at_once_count() {
        let mut facts = example::one_host(2);
        let free = |facts: &mut Facts, bytes| {
            facts.ranks[0].folder.disk.as_mut().unwrap().as_mut().unwrap().free = bytes;
            find(facts)
        };
        // Four checkpoints of 640 kB, and 1,256 lines.
        let (severity, what, why, _) = free(&mut facts, 3_000_000).unwrap();
        assert_eq!(severity, Severity::Error);
        assert!(what.starts_with("the run writes 3.06 MB, and 3 MB is free at runs/"), "{what}");
        assert!(why.contains("4 checkpoints of 640 kB") && why.contains("1,256 steps"), "{why}");
        assert_eq!(free(&mut facts, 3_200_000).unwrap().0, Severity::Warning);
        assert_eq!(free(&mut facts, 4_000_000), None);
        facts.settings.checkpoints.best = true;
        assert!(free(&mut facts, 4_000_000).unwrap().2.contains("6 checkpoints"));
    }
}
