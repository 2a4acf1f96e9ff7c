//! `kolo chaos`: does a job end in the same bits whatever happens to its workers?
//!
//! The job is run once undisturbed, and then again and again while workers are hit. What happens in a run is drawn from its
//! seed ([`plan`]), done to its processes ([`deal`]), and what it has come to is read from its folder ([`check`]).

mod check;
mod deal;
mod job;
mod plan;
mod report;
mod workers;

use std::ops::Range;
use std::path::Path;

use tempfile::TempDir;

pub(crate) use job::Job;

use crate::fail::Failure;
use job::Verdict;
use plan::plan;
use report::Report;

/// Makes all runs and tells the user, whose exit code says whether all went well. The folders of those that did not are kept.
pub(crate) fn chaos(job: &Job, seeds: Range<u64>, json: Option<&Path>) -> Result<(), Failure> {
    let undisturbed = job.undisturbed(place("undisturbed")?.path())?;
    let mut report = Report::begin(job, &undisturbed);
    // A machine that was busy at first must not move all hits behind the end.
    let mut shortest = undisturbed.train_seconds;
    for seed in seeds {
        let place = place(&format!("seed-{seed}"))?;
        let run = job.disturbed(&plan(seed, job.nproc), place.path(), &undisturbed, shortest)?;
        shortest = shortest.min(run.seconds);
        let kept = (run.verdict != Verdict::Same).then(|| place.keep());
        report.add(seed, run, kept.as_deref());
    }
    report.end(json)
}

/// A folder for a run, gone when it is dropped.
fn place(name: &str) -> Result<TempDir, Failure> {
    let made = tempfile::Builder::new().prefix(&format!("kolo-chaos-{name}-")).tempdir();
    made.map_err(|e| Failure::work(format!("cannot make a folder: {e}")))
}
