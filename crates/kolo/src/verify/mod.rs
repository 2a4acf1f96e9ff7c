//! `kolo verify`: does a job end in the same bits however it is run?
//!
//! The job is run for a few steps with one worker, and then with more workers, other buckets, transports and
//! algorithms ([`plan`]). Each run leaves a trace ([`kolo_ddp::verify::trace`]); all are compared with the
//! first one ([`compare`]), and what the differing ones have in common says what is likely to blame
//! ([`cause`]).

mod cause;
mod compare;
mod plan;
mod report;
mod run;

use kolo_ddp::verify::trace::Trace;

use kolo::Failure;

pub(crate) use plan::{Axes, plan};
pub(crate) use run::{Program, VerifyJob};

use compare::{Outcome, difference};

/// Runs the job in all ways of the plan and prints each comparison; an error if a run differs.
pub(crate) fn verify(job: &VerifyJob, axes: &Axes) -> Result<(), Failure> {
    let runs = plan(axes)?;
    let folder = tempfile::tempdir().map_err(|e| Failure::work(format!("cannot make a folder: {e}")))?;
    let mut table = report::Table::begin(&runs);
    let mut first = None;
    let mut outcomes = Vec::new();
    for (number, run) in runs.into_iter().enumerate() {
        // An algorithm that the user has asked for by name is tried, and fails with its reason.
        if let (None, Some(Trace { start, .. })) = (&axes.algorithm, &first)
            && let Some(why) = plan::obstacle(&run, start)
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
    report::end(&outcomes)
}
