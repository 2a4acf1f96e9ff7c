//! Runs a job from its start to its end.

use std::io::Write;

use kolo_elastic::member_name;

use crate::diagnose::diagnose;
use crate::elastic::Elastic;
use crate::environment::{Rendezvous, run_id};
use crate::error::LaunchError;
use crate::error_file::{FailureKind, WorkerError};
use crate::job::Job;
use crate::open_files;
use crate::output::OutputForwarder;
use crate::port;
use crate::signals::Signals;
use crate::supervise::{Recovered, supervise};
use crate::threads;
use crate::token::{self, TokenSource};
use crate::unblocked_stderr::UnblockedStderr;
use crate::worker_exit::{ExitStatus, TERMINATED, WorkerExit};
use crate::workers::{Exits, Workers};

/// Starts the job's workers on this node, forwards their output, and returns when all have ended.
///
/// A worker may end well while others continue. An elastic job (see [`kolo_elastic`]) continues when a
/// worker dies, and the launcher starts a replacement. In other jobs the first failure ends the remaining
/// workers. They get a moment to report their errors, then SIGTERM, and after [`grace`](Job::grace) SIGKILL,
/// each with its whole process group. SIGINT, SIGTERM, SIGHUP, SIGXCPU and the signals of
/// [`stop_on`](Job::stop_on) to the launcher go to the workers and end the job in the same way; another one
/// more than a second later skips the grace. SIGTSTP (Ctrl-Z) stops the workers, too. When this returns, no
/// process of the job is left on this node.
///
/// A program that is not elastic is restarted as a whole after a failure, as torchrun does, up to
/// [`group_restarts`](Job::group_restarts) times.
///
/// # Errors
///
/// The job cannot be started, a worker failed, or a signal ended it. Each error names its culprit, and
/// [`LaunchError::exit_code`] is the code to exit with.
pub fn run(job: &Job) -> Result<(), LaunchError> {
    run_caught(job, None)
}

/// Does the same as [`run`] for a job whose signals have been caught while it was prepared: one that has come
/// ends it.
///
/// # Errors
///
/// Those of [`run`].
pub fn run_caught(job: &Job, mut signals: Option<Signals>) -> Result<(), LaunchError> {
    job.check()?;
    open_files::raise(job)?;
    threads::check(job)?;
    let token = token::choose(job, |name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))?;
    let mut group_restarts = 0;
    loop {
        let mut is_elastic = false;
        let signals = match signals.take() {
            Some(caught) => caught,
            None => Signals::catch(&job.stop_on)?,
        };
        let ended = run_once(job, signals, &token, group_restarts, &mut is_elastic);
        // The caller's words about the end come after these.
        let _ = UnblockedStderr.flush();
        let Err(LaunchError::Failed(report)) = &ended else { return ended };
        let repeats = matches!(report.kind(), Some(FailureKind::WrongInput | FailureKind::Diverged));
        if is_elastic || job.group_restarts == 0 || repeats {
            return ended;
        }
        if job.nnodes > 1 {
            job.messages.print(
                "Kolo restarts the workers of several nodes only if they are members of an elastic job",
            );
            return ended;
        }
        if group_restarts == job.group_restarts {
            return ended;
        }
        group_restarts += 1;
        let of = job.group_restarts;
        job.messages
            .print(&format!("{report}\nKolo starts all workers again (restart {group_restarts} of {of})"));
    }
}

/// Starts the workers and waits for their end. Sets `is_elastic` if they have formed a generation.
fn run_once(
    job: &Job,
    mut signals: Signals,
    token: &TokenSource,
    group_restarts: usize,
    is_elastic: &mut bool,
) -> Result<(), LaunchError> {
    let mut elastic = Elastic::start(job, token)?;
    // Below, the number of nodes is that at the job's start.
    let most_workers = job.nproc * job.nnodes;
    let job = &match job.nnodes_min.filter(|_| job.nnodes > 1) {
        None => job.clone(),
        Some(_) => elastic.wait_for_node_rank(job, &mut signals)?,
    };
    let port = port::choose(job)?;
    let rendezvous = Rendezvous {
        port,
        run_id: run_id(job, port),
        token: token.clone(),
        coordinator: Some(elastic.coordinator.address()),
        group_restarts,
        most_workers,
    };
    // Must precede every arrival: the first generation waits for all expected members.
    (0..job.processes())
        .for_each(|local| elastic.coordinator.member_started(&member_name(job.node_rank, local, 0)));
    let mut workers = Workers::start(job, &rendezvous, elastic.coordinator.ranks())?;
    let mut streams = OutputForwarder::start(&mut workers, elastic.coordinator.ranks(), job.messages)?;
    let interrupted = supervise(job, &mut workers, &mut signals, |workers, end| {
        if let Some(cause) = end {
            elastic.close(cause);
        }
        let due = elastic.update(workers)?;
        streams.forget(&workers.release_survived());
        for local_rank in due {
            match workers.start_one(job, &rendezvous, local_rank) {
                Ok(worker) => {
                    elastic.coordinator.member_started(&worker.member);
                    streams.add(worker)?;
                }
                // The other workers are well.
                Err(error) => elastic.not_replaced(local_rank, &error, workers),
            }
        }
        Ok(Recovered { needs_launcher: elastic.needs_launcher(workers), has_begun: elastic.has_begun() })
    })?;
    let Exits { last: mut exits, earlier } = workers.finish();
    *is_elastic = elastic.has_formed();
    if interrupted.is_some() {
        elastic.report_left();
    }
    // From here on, Ctrl-C ends the launcher at once, even while it waits for a slow reader.
    drop(signals);
    if interrupted.is_none() && !exits.iter().any(|exit| exit.status.failed()) {
        streams.finish();
        elastic.report_done(job);
        return Ok(());
    }
    let last_lines = streams.abandon();
    for exit in exits.iter_mut().filter(|exit| exit.status.failed() && exit.error.is_none()) {
        exit.error = last_lines.of(&exit.member);
    }
    outcome(interrupted, &exits, earlier)
}

fn outcome(
    interrupted: Option<i32>,
    exits: &[WorkerExit],
    earlier: Vec<WorkerExit>,
) -> Result<(), LaunchError> {
    let failed = || exits.iter().filter(|exit| exit.status.failed());
    match (interrupted, diagnose(exits).map(|report| report.after(earlier))) {
        // Job managers signal the launcher and the workers alike, and a worker may end first, which is no
        // failure of its own.
        (Some(signal), _) if failed().all(|exit| exit.status == ExitStatus::Signal(signal)) => {
            let kind = exits.iter().find_map(|exit| exit.error.as_ref()?.kind);
            Err(LaunchError::Interrupted { signal, reports: reports(exits), kind })
        }
        (None, Some(report)) if failed().all(|exit| exit.status == TERMINATED) => {
            let reported = exits.iter().filter(|exit| exit.reported());
            let first = reported.min_by_key(|exit| exit.rank.map_or(usize::MAX, |rank| rank.0));
            match first.and_then(|exit| exit.error.as_ref()) {
                Some(error) => Err(LaunchError::Asked { report: error.message.clone(), kind: error.kind }),
                None => Err(LaunchError::Failed(Box::new(report))),
            }
        }
        (_, Some(report)) => Err(LaunchError::Failed(Box::new(report))),
        (_, None) => Ok(()),
    }
}

/// Returns the distinct errors of workers that were asked to end. Skips workers that blame another one,
/// because they only missed it.
fn reports(exits: &[WorkerExit]) -> Vec<String> {
    let mut seen: Vec<&WorkerError> = Vec::new();
    let mut reports = Vec::new();
    for exit in exits.iter().filter(|exit| exit.reported() && exit.blames().is_none()) {
        let Some(error) = exit.error.as_ref().filter(|error| !seen.contains(error)) else { continue };
        seen.push(error);
        reports.push(format!("{}: {}", exit.name(), error.message));
    }
    reports
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kolo_comm::Rank;

    use super::*;

    #[test]
    fn workers_that_were_asked_to_end_have_not_failed() {
        let exit = |rank: usize, status| WorkerExit {
            rank: Some(Rank(rank)),
            member: format!("node0/{rank}.0"),
            pid: 1,
            after: Duration::ZERO,
            status,
            evicted: None,
            error: Some(WorkerError {
                message: format!("ended, says rank {rank}"),
                culprit: None,
                kind: None,
                reported: true,
            }),
        };
        let all = outcome(None, &[exit(1, TERMINATED), exit(0, TERMINATED)], Vec::new()).unwrap_err();
        assert_eq!((all.to_string().as_str(), all.exit_code()), ("ended, says rank 0", 143));
        let one =
            outcome(None, &[exit(1, TERMINATED), exit(0, ExitStatus::Code(3))], Vec::new()).unwrap_err();
        assert!(matches!(one, LaunchError::Failed(_)), "{one}");
    }

    #[test]
    fn an_interruption_is_no_failure_and_hides_none() {
        let (term, ours) = (ExitStatus::Signal(15), ExitStatus::ByLauncher { stopped: false });
        for (interrupted, ends, code) in [
            (None, [ExitStatus::Code(0), ExitStatus::Code(0)], 0),
            (Some(15), [ours, ours], 143),
            (Some(2), [ExitStatus::Code(0), ours], 130),
            (Some(15), [term, ours], 143),
            (Some(2), [ExitStatus::Code(3), ours], 3),
            (None, [term, ours], 143),
        ] {
            let exit = |(rank, status): (usize, &ExitStatus)| WorkerExit {
                rank: Some(Rank(rank)),
                member: format!("node0/{rank}.0"),
                pid: 1,
                after: Duration::ZERO,
                status: *status,
                evicted: None,
                error: None,
            };
            let exits: Vec<WorkerExit> = ends.iter().enumerate().map(exit).collect();
            let outcome = outcome(interrupted, &exits, Vec::new());
            assert_eq!(
                outcome.map_or_else(|error| error.exit_code(), |()| 0),
                code,
                "{interrupted:?} {ends:?}"
            );
        }
    }
}
