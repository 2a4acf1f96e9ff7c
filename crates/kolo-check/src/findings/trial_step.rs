//! A trial step that fails.

use kolo_report::units::bytes;

use super::memory::REMEDY;
use super::{Check, Found, Severity};
use crate::facts::Facts;
use crate::trial::Trial;

pub(super) const CHECK: Check =
    Check { name: "trial step", about: "a worker that cannot take a step of one shard", find };

fn find(facts: &Facts) -> Option<Found> {
    let failed = facts.ranks.iter().enumerate().find_map(|(rank, found)| match &found.trial {
        Trial::Failed { how, was_killed, words } => Some((rank, how, *was_killed, words)),
        _ => None,
    });
    let (rank, how, was_killed, words) = failed?;
    let output = if words.is_empty() { String::new() } else { format!("; its last words: {words}") };
    let free = facts.ranks[rank].memory.free();
    let (cause, remedy) = match was_killed {
        true => (" A process that is killed has mostly used more memory than it may.", REMEDY),
        false => ("", "Mend what its last words name."),
    };
    Some((
        Severity::Error,
        format!("the trial step of {} {how}{output}", facts.name(rank)),
        format!(
            "One step of one shard was tried in a process of its own, with {} of memory free. The run would end there, too.{cause}",
            bytes(free as f64)
        ),
        remedy.into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn a_kill_differs_from_a_failure() {
        let mut facts = example::one_host(2);
        let mut failed = |how: &str, was_killed, words: &str| {
            facts.ranks[1].trial = Trial::Failed { how: how.into(), was_killed, words: words.into() };
            find(&facts).unwrap()
        };
        let (severity, what, why, remedy) = failed("was killed by signal 9", true, "");
        assert_eq!(
            (severity, what.as_str()),
            (Severity::Error, "the trial step of rank 1 was killed by signal 9")
        );
        assert!(why.contains("16 GB") && why.contains("memory than it may"), "{why}");
        assert!(remedy.contains("--nproc"), "{remedy}");
        let (_, what, why, _) = failed("has failed with exit code 2", false, "error: no");
        assert!(
            what.ends_with("exit code 2; its last words: error: no") && !why.contains("killed"),
            "{what}"
        );
    }
}
