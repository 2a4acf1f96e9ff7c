//! Ranks that run different programs.

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check =
    Check { name: "program", about: "a rank that runs another build than rank 0", find };

fn find(facts: &Facts) -> Option<Found> {
    let first = &facts.ranks.first()?.program;
    let rank = facts.ranks.iter().position(|other| other.program != *first)?;
    let other = &facts.ranks[rank].program;
    let how = match first.version == other.version {
        true => format!("another build of {} than rank 0", other.version),
        false => format!("version {}, rank 0 version {}", other.version, first.version),
    };
    Some((
        Severity::Warning,
        format!("{} runs {how}", facts.name(rank)),
        "Two builds may round differently, and two versions may not understand each other: the same bits are promised \
         for one program."
            .into(),
        "Copy one file to all nodes, or start it from a folder that they share.".into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn another_build_differs_from_another_version() {
        let mut facts = example::hosts(3);
        facts.ranks[2].program.sha256 = Some("4567".into());
        assert_eq!(find(&facts).unwrap().1, "rank 2 on c runs another build of 0.1.0 than rank 0");
        facts.ranks[1].program.version = "0.2.0".into();
        assert_eq!(find(&facts).unwrap().1, "rank 1 on b runs version 0.2.0, rank 0 version 0.1.0");
    }
}
