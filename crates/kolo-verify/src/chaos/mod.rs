//! `kolo chaos`: checks that a job ends in the same bits whatever happens to its workers.
//!
//! The job runs once undisturbed, and then once for each seed with faults. The seed decides the faults
//! (`plan`), which are injected into the processes (`inject`). The result comes from the run
//! folder, or from the trace of a user's own program (`record`).

mod aimed;
mod disk;
mod etcd;
mod fault;
mod hosts;
mod inject;
mod job;
mod launchers;
mod log_pipe;
mod mounts;
mod place;
mod plan;
mod port;
mod record;
mod report;
mod start;
mod strike;
mod workers;

use std::ops::Range;

pub use job::{ChaosJob, Program};

use hosts::own_names;
use job::RunVerdict;
use kolo_program::Failure;
use mounts::own_mounts;
use plan::{apart, plan};
use record::RunRecord;
use report::Report;

/// Makes all runs and prints their results. Pairs of seeds take turns with the jobs, of which there must be
/// at least one.
///
/// # Errors
///
/// A run did not end as it should; the folders of such runs are kept.
pub fn chaos(jobs: &[ChaosJob], seeds: Range<u64>, json: bool) -> Result<(), Failure> {
    let [job, ..] = jobs else { return Ok(()) };
    if job.disk.is_some() || job.cut_links {
        own_mounts(if job.cut_links { "--cut-links" } else { "--disk-mb" })?;
    }
    if job.cut_links {
        own_names()?;
    }
    let undisturbed = job.undisturbed(&job.place("undisturbed")?)?;
    let mut report = Report::begin(job, &undisturbed, json);
    // Each job with its undisturbed run, once it is needed, and the shortest time of its runs: a machine that
    // was busy at first must not move all faults behind the end of the run.
    let mut known: Vec<Option<(RunRecord, f64)>> = vec![None; jobs.len()];
    known[0] = Some((undisturbed.clone(), undisturbed.train_seconds));
    for seed in seeds {
        let number = (seed / 2) as usize % jobs.len();
        let job = &jobs[number];
        let (undisturbed, shortest) = match &mut known[number] {
            Some(known) => known,
            unknown => {
                let record = job.undisturbed(&job.place("undisturbed")?)?;
                report.undisturbed(job, &record);
                let seconds = record.train_seconds;
                unknown.insert((record, seconds))
            }
        };
        let mut place = job.place(&format!("seed-{seed}"))?;
        // Half of the runs are tuned, because tuning changes the operations that a death interrupts.
        let (hits, tuned) = (plan(seed, job.targets()), seed % 2 == 1);
        let hits = if job.divided { apart(hits) } else { hits };
        let run = job.disturbed(&hits, &mut place, undisturbed, *shortest, tuned)?;
        *shortest = shortest.min(run.seconds);
        let kept = (run.verdict != RunVerdict::Same).then(|| place.keep());
        report.add(seed, &job.name, run, kept.as_deref());
    }
    report.end()
}
