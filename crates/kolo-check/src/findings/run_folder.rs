//! A run folder that cannot be written.

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check = Check {
    name: "run folder",
    about: "a run folder that is there already, cannot be written, or is written by another job",
    find,
};

fn find(facts: &Facts) -> Option<Found> {
    let (found, settings) = (&facts.ranks.first()?.folder, &facts.settings);
    let folder = settings.folder.display();
    let (what, why, remedy) = if let Some(writer) = &found.writer {
        (
            format!("{folder} is written by {writer}"),
            "Two jobs that write one folder would tell steps twice and remove each other's checkpoints, so the second one is refused.",
            "Wait for that job, or end it; --take-over takes the folder from it.",
        )
    } else if let Some(Err(error)) = &found.disk {
        (
            format!("the run folder cannot be written: {error}"),
            "Metrics and checkpoints go there, and a run without them is refused at its start.",
            "Name a folder that can be written (--out), or change its owner or permissions.",
        )
    } else if found.exists && !settings.may_continue {
        (
            format!("{folder} exists already"),
            "A new run makes its folder, so that it never writes over another one.",
            "Name another one (--out), or continue the run that is there (--resume, or --resume-or-start).",
        )
    } else {
        return None;
    };
    Some((Severity::Error, what, why.into(), remedy.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn a_folder_that_is_there_is_one_to_go_on_with() {
        let mut facts = example::one_host(1);
        facts.ranks[0].folder.exists = true;
        assert!(find(&facts).unwrap().1.ends_with("exists already"));
        facts.settings.may_continue = true;
        assert_eq!(find(&facts), None);
        facts.ranks[0].folder.writer = Some("process 7 on b".into());
        assert!(find(&facts).unwrap().1.ends_with("is written by process 7 on b"));
        facts.ranks[0].folder.writer = None;
        facts.ranks[0].folder.disk = Some(Err("runs: Permission denied".into()));
        assert!(find(&facts).unwrap().1.ends_with("runs: Permission denied"));
    }
}
