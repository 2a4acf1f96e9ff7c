//! A low limit of open files.

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check =
    Check { name: "open files", about: "a limit of open files and connections that is too low", find };

/// Files that a run opens in addition to those of its group: metrics, checkpoints, data, libraries.
const FILES: u64 = 24;

/// Connections of each rank to the store of a generation, which the leading launcher serves.
const OF_RANK: u64 = 5;

fn find(facts: &Facts) -> Option<Found> {
    of_ranks(facts).or_else(|| of_launchers(facts))
}

/// Checks launchers: each accepts the connections of its workers, and the leading one those of all ranks.
fn of_launchers(facts: &Facts) -> Option<Found> {
    // A new generation's store is served while the connections of the old one still exist.
    let more = if facts.settings.is_elastic { OF_RANK * facts.ranks.len() as u64 } else { 0 };
    let need = |used: u64| used + more + FILES;
    let launchers = facts.ranks.iter().enumerate();
    let launchers = launchers.filter_map(|(rank, found)| Some((rank, found.open_files.launcher?)));
    let (rank, files) = launchers.min_by_key(|(_, files)| files.limit as i64 - need(files.used) as i64)?;
    if files.limit >= need(files.used) {
        return None;
    }
    let (severity, limit) = (Severity::Warning, files.limit);
    Some((
        severity,
        format!(
            "the launcher of {} may have {limit} files and connections open, and will need some {}",
            facts.name(rank),
            need(files.used)
        ),
        format!(
            "It has {} now. One that has none left accepts no more connections, and workers wait.",
            files.used
        ),
        format!(
            "Raise the hard limit before starting it: ulimit -n {}; or start fewer workers on each node.",
            need(files.used).next_power_of_two().max(1024)
        ),
    ))
}

fn of_ranks(facts: &Facts) -> Option<Found> {
    // While an elastic job forms a new group, the connections of the old one still exist.
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
        true => ", and as many again while it continues after a death",
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
    use crate::probes::LauncherFiles;

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

    #[test]
    fn the_launcher_needs_files_too() {
        let mut facts = example::one_host(4);
        let mut found = |limit| {
            facts.ranks[2].open_files.launcher = Some(LauncherFiles { limit, used: 100 });
            find(&facts)
        };
        assert_eq!(found(144), None);
        let (severity, what, ..) = found(143).unwrap();
        assert_eq!(severity, Severity::Warning);
        assert!(what.starts_with("the launcher of rank 2 may have 143 files"), "{what}");
    }
}
