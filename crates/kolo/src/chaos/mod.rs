//! `kolo chaos`: does a job end in the same bits whatever happens to its workers?
//!
//! The job is run once undisturbed, and then once for each seed, with faults. The faults of a run are drawn
//! from its seed ([`plan`]), injected into its processes ([`inject`]), and its result is read from its
//! folder, or from its trace where it is a user's own program ([`record`]).

mod inject;
mod job;
mod launchers;
mod plan;
mod record;
mod report;
mod strike;
mod workers;

use std::ops::Range;
use std::path::Path;

use tempfile::TempDir;

pub(crate) use job::{Arbiter, ChaosJob, Program};

use job::RunVerdict;
use kolo::Failure;
use plan::plan;
use report::Report;

/// Makes all runs and prints their results; an error if a run has not ended as it should. The folders of such
/// runs are kept.
pub(crate) fn chaos(job: &ChaosJob, seeds: Range<u64>, json: Option<&Path>) -> Result<(), Failure> {
    let undisturbed = job.undisturbed(place("undisturbed")?.path())?;
    let mut report = Report::begin(job, &undisturbed);
    // A machine that was busy at first must not move all faults behind the end of the run.
    let mut shortest = undisturbed.train_seconds;
    for seed in seeds {
        let place = place(&format!("seed-{seed}"))?;
        let run = job.disturbed(&plan(seed, job.targets()), place.path(), &undisturbed, shortest)?;
        shortest = shortest.min(run.seconds);
        let kept = (run.verdict != RunVerdict::Same).then(|| place.keep());
        report.add(seed, run, kept.as_deref());
    }
    report.end(json)
}

/// A folder for a run, gone when it is dropped.
fn place(name: &str) -> Result<TempDir, Failure> {
    let made = tempfile::Builder::new().prefix(&format!("kolo-chaos-{name}-")).tempdir();
    made.map_err(|e| Failure::work(format!("cannot make a folder: {e}")))
}
