//! A run folder that not all ranks share.

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check = Check {
    name: "shared folder",
    about: "a rank that does not see what rank 0 writes beside the run folder",
    find,
};

fn find(facts: &Facts) -> Option<Found> {
    let rank = facts.ranks.iter().position(|rank| rank.folder.is_shared == Some(false))?;
    let (is_elastic, resumes) = (facts.settings.is_elastic, facts.settings.resumes);
    let (severity, why) = match (resumes, is_elastic) {
        (true, _) => (
            Severity::Error,
            "All ranks read the checkpoint that the run continues from, and this one cannot.",
        ),
        (false, true) => (
            Severity::Error,
            "When rank 0 dies another one goes on writing, and a worker that takes a dead one's place looks for the folder: neither \
             would find it.",
        ),
        (false, false) => (
            Severity::Warning,
            "Rank 0 alone writes while the run lasts, but all ranks read the checkpoint when it is resumed, and this one could not.",
        ),
    };
    Some((
        severity,
        format!(
            "{} does not see what rank 0 has written at {}",
            facts.name(rank),
            facts.settings.folder.display()
        ),
        why.into(),
        "Put the run folder on a disk that all nodes have mounted at the same place (--out), and start the workers in the same \
         folder where it is a relative one."
            .into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn elastic_and_resumed_jobs_need_it() {
        let mut facts = example::hosts(3);
        facts.ranks[2].folder.is_shared = Some(false);
        let (severity, what, ..) = find(&facts).unwrap();
        assert!(severity == Severity::Error && what.starts_with("rank 2 on c does not see"), "{what}");
        facts.settings.is_elastic = false;
        assert_eq!(find(&facts).unwrap().0, Severity::Warning);
        facts.settings.resumes = true;
        assert_eq!(find(&facts).unwrap().0, Severity::Error);
    }
}
