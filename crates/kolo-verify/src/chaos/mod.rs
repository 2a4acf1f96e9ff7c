//! `kolo chaos`: checks that a job ends in the same bits whatever happens to its workers.
//!
//! The job runs once undisturbed, and then once for each seed with faults. The seed decides the faults
//! (`plan`), which are injected into the processes (`inject`). The result comes from the run
//! folder, or from the trace of a user's own program (`record`).

mod disk;
mod etcd;
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
mod strike;
mod workers;

use std::ops::Range;
use std::path::Path;

pub use job::{ChaosJob, Program};

use hosts::own_names;
use job::RunVerdict;
use kolo_program::Failure;
use mounts::own_mounts;
use plan::plan;
use report::Report;

/// Makes all runs and prints their results.
///
/// # Errors
///
/// A run did not end as it should; the folders of such runs are kept.
pub fn chaos(job: &ChaosJob, seeds: Range<u64>, json: Option<&Path>) -> Result<(), Failure> {
    if job.disk.is_some() || job.cut_links {
        own_mounts(if job.cut_links { "--cut-links" } else { "--disk-mb" })?;
    }
    if job.cut_links {
        own_names()?;
    }
    let undisturbed = job.undisturbed(&job.place("undisturbed")?)?;
    let mut report = Report::begin(job, &undisturbed);
    // The minimum: a machine that was busy at first must not move all faults behind the end of the run.
    let mut shortest = undisturbed.train_seconds;
    for seed in seeds {
        let mut place = job.place(&format!("seed-{seed}"))?;
        // Half of the runs are tuned, because tuning changes the operations that a death interrupts.
        let (hits, tuned) = (plan(seed, job.targets()), seed % 2 == 1);
        let run = job.disturbed(&hits, &mut place, &undisturbed, shortest, tuned)?;
        shortest = shortest.min(run.seconds);
        let kept = (run.verdict != RunVerdict::Same).then(|| place.keep());
        report.add(seed, run, kept.as_deref());
    }
    report.end(json)
}
