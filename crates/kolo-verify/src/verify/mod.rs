//! `kolo verify`: checks that a job ends in the same bits however it is run.
//!
//! The job runs for a few steps with one worker, and then with more workers, other buckets, transports and
//! algorithms (`plan`). Each run leaves a trace ([`kolo_ddp::verify::trace`]), which is compared
//! with the first one (`compare`). The choices that the differing runs share point to the likely cause
//! (`cause`).

mod axes;
mod cause;
mod compare;
mod obstacle;
mod plan;
mod report;
mod run;

use kolo_ddp::verify::trace::Trace;

use kolo_program::Failure;

pub use axes::{Axes, Extent};
pub use run::{Program, VerifyJob};

use compare::{Outcome, difference};
use plan::plan;

/// Runs the job in all ways of the plan and prints each comparison.
///
/// # Errors
///
/// A run differs or fails.
pub fn verify(job: &VerifyJob, axes: &Axes) -> Result<(), Failure> {
    let runs = plan(axes)?;
    let folder = tempfile::tempdir().map_err(|e| Failure::work(format!("cannot make a folder: {e}")))?;
    let mut table = report::Table::begin(&runs, job.json);
    let mut first = None;
    let mut outcomes = Vec::new();
    for (number, run) in runs.into_iter().enumerate() {
        // An algorithm that the user gave by name is tried anyway, and fails with its reason.
        if let (None, Some(Trace { start, .. })) = (&axes.algorithm, &first)
            && let Some(why) = obstacle::obstacle(&run, start)
        {
            table.left_out(&run, why);
            continue;
        }
        let trace = job.trace(&run, &folder.path().join(number.to_string()))?;
        let reference = first.get_or_insert_with(|| trace.clone());
        let outcome = Outcome { difference: difference(reference, &trace), run, trace };
        table.row(&outcome);
        outcomes.push(outcome);
    }
    table.end(&outcomes)
}
