//! Findings: what limits a run, in sentences. Each is one file, and one line of [`FINDINGS`].

mod batch_size;
mod changes;
mod finding;
mod huge_bucket;
mod loss;
mod recoveries;
mod skipped_steps;
mod slow_link;
mod small_buckets;
mod stalls;
mod straggler;
mod waiting;
mod warnings;

use kolo_run_folder::Run;

pub use finding::{Entry, Finding, Found, Severity, search};

/// All findings that a report looks for.
pub static FINDINGS: &[Entry<Run>] = &[
    straggler::ENTRY,
    slow_link::ENTRY,
    small_buckets::ENTRY,
    huge_bucket::ENTRY,
    waiting::ENTRY,
    stalls::ENTRY,
    loss::ENTRY,
    skipped_steps::ENTRY,
    recoveries::ENTRY,
    changes::ENTRY,
    batch_size::ENTRY,
    warnings::ENTRY,
];

/// The first of them are about waiting for other workers, and cannot apply to a run with one worker.
const AMONG_WORKERS: usize = 5;

/// Returns the findings of a run, the most severe first.
pub fn findings(run: &Run) -> Vec<Finding> {
    search(if is_alone(run) { &FINDINGS[AMONG_WORKERS..] } else { FINDINGS }, run)
}

/// Returns true if the run had one worker all the time: it waits only for its own work, on another thread.
fn is_alone(run: &Run) -> bool {
    let ended_with = run.summary.as_ref().and_then(|summary| summary.world_size);
    let began_with = run.settings.number("nproc");
    ended_with.is_none_or(|workers| workers == 1)
        && began_with.is_none_or(|workers| workers == 1.0)
        && run.generations.iter().all(|row| row.world_size == 1)
        && run.ranks.iter().all(|row| row.ranks.len() == 1)
        && (ended_with.is_some() || began_with.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn nothing_stands_out_in_a_sound_run() {
        assert_eq!(findings(&example::run(200)), []);
        assert_eq!(findings(&example::run(0)), [], "nor in one that begins");
    }

    #[test]
    fn entries_have_names_of_their_own() {
        for entry in FINDINGS {
            assert_eq!(FINDINGS.iter().filter(|other| other.name == entry.name).count(), 1, "{}", entry.name);
            assert!(!entry.about.is_empty());
        }
    }

    #[test]
    fn one_worker_has_no_findings_about_waiting() {
        let waiting = || example::waiting(example::with_buckets(&[(1e6, 0.041), (20e6, 0.002)]), 0.04);
        assert!(!findings(&waiting()).is_empty());
        let mut alone = waiting();
        alone.summary.as_mut().unwrap().world_size = Some(1);
        // Two workers began it.
        assert!(!findings(&alone).is_empty());
        alone.settings.0.insert("nproc".into(), 1.into());
        assert_eq!(findings(&alone), []);
        alone.summary = None;
        assert_eq!(findings(&alone), [], "a run that goes on");
    }

    #[test]
    fn the_most_severe_finding_comes_first() {
        let mut run = example::waiting(example::with_buckets(&[(1e6, 0.041), (20e6, 0.002)]), 0.04);
        run.steps[70].skipped = true;
        let found = findings(&run);
        assert!(found.len() == 2 && found[0].severity < found[1].severity, "{found:?}");
    }
}
