//! Checks: each is one file, and one line of [`CHECKS`].

mod batch_norm;
mod check;
mod checkpoint;
mod clocks;
mod cores;
mod data;
mod data_differs;
mod data_warnings;
mod disk_space;
mod evaluation;
mod huge_pages;
mod last_batch;
mod latency;
mod learning_rate;
mod lost_work;
mod memory;
mod network;
mod open_files;
mod patience;
mod processors;
mod program;
mod rebalance;
mod run_folder;
mod same_run;
mod scaling;
mod schedule;
mod settings;
mod shards;
mod shared_folder;
mod slow_disk;
mod slow_link;
mod slow_worker;
mod steps;
mod trial_step;
mod unread_files;
mod warmup;

use kolo_report::findings::search;

use crate::facts::Facts;

pub use check::{Check, Finding, Found, Severity};

/// All checks: the hosts, the network, the disk, the data, and the settings in combination.
pub static CHECKS: &[Check] = &[
    settings::CHECK,
    program::CHECK,
    processors::CHECK,
    cores::CHECK,
    slow_worker::CHECK,
    trial_step::CHECK,
    memory::CHECK,
    huge_pages::CHECK,
    open_files::CHECK,
    clocks::CHECK,
    slow_link::CHECK,
    latency::CHECK,
    network::CHECK,
    run_folder::CHECK,
    shared_folder::CHECK,
    disk_space::CHECK,
    slow_disk::CHECK,
    checkpoint::CHECK,
    data::CHECK,
    data_differs::CHECK,
    data_warnings::CHECK,
    unread_files::CHECK,
    learning_rate::CHECK,
    scaling::CHECK,
    warmup::CHECK,
    schedule::CHECK,
    steps::CHECK,
    shards::CHECK,
    rebalance::CHECK,
    last_batch::CHECK,
    batch_norm::CHECK,
    evaluation::CHECK,
    lost_work::CHECK,
    patience::CHECK,
    same_run::CHECK,
];

/// Returns the findings, the most severe first.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    search(CHECKS, facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn nothing_stands_out_in_a_sound_job() {
        // With 6 and 8 workers the last batch of the 10,000 samples leaves each shard two.
        for workers in [1, 2, 3, 4, 5, 7] {
            assert_eq!(findings(&example::one_host(workers)), [], "{workers}");
            assert_eq!(findings(&example::hosts(workers)), [], "{workers}");
        }
    }

    #[test]
    fn checks_have_names_of_their_own() {
        for check in CHECKS {
            assert_eq!(CHECKS.iter().filter(|other| other.name == check.name).count(), 1, "{}", check.name);
            assert!(!check.about.is_empty());
        }
    }

    #[test]
    fn the_most_severe_finding_comes_first() {
        let mut facts = example::one_host(2);
        facts.settings.patience = Some(9);
        facts.ranks[1].data = Err("no such file".into());
        let found = findings(&facts);
        assert!(found.len() == 2 && found[0].severity == Severity::Error, "{found:?}");
    }

    /// Without data, trial steps or disk, and with a server: no check relies on missing facts.
    #[test]
    fn facts_that_are_missing_are_no_findings_and_no_panic() {
        let mut facts = example::hosts(3);
        facts.settings.work = None;
        for rank in &mut facts.ranks {
            rank.trial = crate::trial::Trial::NotTaken;
            rank.folder.disk = None;
            rank.folder.is_shared = None;
            rank.open_files.limit = None;
            rank.huge_pages = None;
        }
        facts.ranks[2].is_server = true;
        facts.settings.shares = vec![1, 1];
        assert_eq!(findings(&facts), []);
        facts.links.clear();
        assert_eq!(findings(&facts), []);
    }
}
