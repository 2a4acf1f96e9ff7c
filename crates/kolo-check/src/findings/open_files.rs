//! A limit of open files that is too low.

use super::finding::{Check, Found, Severity};
use crate::facts::Facts;

/// Entry of the table.
pub(super) const CHECK: Check =
    Check { name: "open files", about: "a limit of open files and connections that is too low", find };

/// Files that a run has open at once besides those of its group: metrics, checkpoints, data, libraries.
const FILES: u64 = 24;

fn find(facts: &Facts) -> Option<Found> {
    // While an elastic job forms a group anew the old one's connections are still there.
    let groups = if facts.settings.is_elastic { 2 } else { 1 };
    let need = |used: u64| groups * used + FILES;
    let limits = facts.ranks.iter().enumerate();
    let limits =
        limits.filter_map(|(rank, found)| Some((rank, found.open_files.limit?, found.open_files.used)));
    let (rank, limit, used) = limits.min_by_key(|(_, limit, used)| *limit as i64 - need(*used) as i64)?;
    if limit >= need(used) {
        return None;
    }
    let severity = if limit < used + FILES { Severity::Error } else { Severity::Warning };
    let more = match facts.settings.is_elastic {
        true => ", and as many again while it goes on after a death",
        false => "",
    };
    Some((
        severity,
        format!(
            "{} may have {limit} files and connections open, and will need some {}",
            facts.name(rank),
            need(used)
        ),
        format!(
            "It has {used} now, as a member of the group; a run opens {FILES} more for metrics, checkpoints and data{more}."
        ),
        format!(
            "Raise the hard limit before starting the workers: ulimit -n {}",
            need(used).next_power_of_two().max(1024)
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn the_group_the_run_and_a_recovery_need_files() {
        let mut facts = example::one_host(2);
        let mut found = |limit| {
            facts.ranks[1].open_files.limit = Some(limit);
            find(&facts).map(|(severity, ..)| severity)
        };
        assert_eq!(
            [48, 49, 73, 74].map(&mut found),
            [Some(Severity::Error), Some(Severity::Warning), Some(Severity::Warning), None]
        );
        facts.settings.is_elastic = false;
        facts.ranks[1].open_files.limit = Some(49);
        assert_eq!(find(&facts), None);
    }
}
