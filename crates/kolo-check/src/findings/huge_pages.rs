//! A host without huge pages.

use super::{Check, Found, Severity};
use crate::facts::Facts;
use crate::probes::HugePages;

pub(super) const CHECK: Check =
    Check { name: "huge pages", about: "a host that gives no huge pages to programs", find };

fn find(facts: &Facts) -> Option<Found> {
    let (rank, _) = facts.workers().find(|(_, rank)| rank.huge_pages == Some(HugePages::Never))?;
    Some((
        Severity::Notice,
        format!("{} gets no huge pages: transparent_hugepage is `never` on {}", facts.name(rank), facts.ranks[rank].host.name),
        "Workers keep their tensors' memory and ask for pages of 2 MiB: with pages of 4 KiB there are 512 times as many to look up \
         and, at first, to clear."
            .into(),
        "As root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled".into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn a_host_without_them_is_named() {
        let mut facts = example::hosts(2);
        facts.ranks[1].huge_pages = Some(HugePages::Never);
        assert!(find(&facts).unwrap().1.ends_with("`never` on b"));
    }
}
