//! Finds the worker that failed first: its peers fail a moment later, and often say so louder.
//!
//! [`diagnose`] is a pure decision over how all workers ended. It starts from the first failure, allows for
//! ends that were noticed out of order, and then follows the blame: a worker whose error says "rank 1 died"
//! points at rank 1.

use std::cmp::Reverse;
use std::time::Duration;

use kolo_comm::Rank;
use signal_hook::consts::signal::{SIGABRT, SIGPIPE};

use crate::failure_report::{BlamedState, FailureReport, Reason};
use crate::worker_exit::{ExitStatus, SHELL_SIGNAL_BASE, WorkerExit, shell_code};

/// Exits this close to the first are not told apart by time: a process closes its connections before it is
/// seen to have ended, so that on a busy machine its victims may be seen first.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Decides which worker failed first. `None` if none failed by itself.
///
/// The order of `exits` does not matter.
pub fn diagnose(exits: &[WorkerExit]) -> Option<FailureReport> {
    let mut failed: Vec<&WorkerExit> = exits.iter().filter(|exit| exit.status.failed()).collect();
    failed.sort_by_key(|exit| (exit.after, exit.rank));
    let first = *failed.first()?;
    let at_once = failed.iter().take_while(|exit| exit.after <= first.after + AT_ONCE);
    // Of equals the first: `max_by_key` would give the last.
    let start = *at_once.min_by_key(|exit| Reverse(clarity(exit))).unwrap_or(&first);
    let (root, reason, speaker) = follow(start, first, exits);
    Some(FailureReport {
        root: root.clone(),
        reason,
        alike: ranks(exits, |exit| exit.rank != root.rank && is_alike(exit, root)),
        consequences: ranks(exits, |exit| {
            let well = matches!(exit.status, ExitStatus::Code(0) | ExitStatus::Stuck);
            exit.rank != root.rank && !well && !is_alike(exit, root)
        }),
        stuck: ranks(exits, |exit| exit.status == ExitStatus::Stuck),
        exit_code: shell_code(match speaker.status {
            ExitStatus::Code(code) => code,
            ExitStatus::Signal(signal) => SHELL_SIGNAL_BASE + signal,
            ExitStatus::ByLauncher { .. } | ExitStatus::Stuck => 1,
        }),
    })
}

/// How clearly an exit speaks for being the cause rather than a consequence.
fn clarity(exit: &WorkerExit) -> u8 {
    match exit.status {
        // A worker that blames another says itself that it is not the cause.
        _ if exit.blames().is_some() => 0,
        // A peer's end does this to a program that does not expect it …
        ExitStatus::Signal(SIGPIPE) => 1,
        // … and an uncaught error does that.
        ExitStatus::Signal(signal) if signal != SIGABRT => 4,
        _ if exit.error.is_some() => 3,
        _ => 2,
    }
}

/// Follows the blame from `start` to its end. Gives the worker to name, why, and the failed worker whose
/// exit code becomes the job's.
fn follow<'a>(
    start: &'a WorkerExit,
    first: &WorkerExit,
    exits: &'a [WorkerExit],
) -> (&'a WorkerExit, Reason, &'a WorkerExit) {
    let mut path = vec![start];
    loop {
        let at = path[path.len() - 1];
        let reason = match path.len() {
            1 if start.rank == first.rank => Reason::First,
            1 => Reason::Clearest,
            n => Reason::Blamed { by: path[n - 2].rank },
        };
        let Some(culprit) = at.blames() else { return (at, reason, at) };
        let blames = |state| (at, Reason::Blames { culprit, state }, at);
        let Some(blamed) = exits.iter().find(|exit| exit.rank == culprit) else {
            return blames(BlamedState::Elsewhere);
        };
        match blamed.status {
            ExitStatus::ByLauncher { stopped: true } => {
                return (blamed, Reason::Stopped { noticed: Box::new(at.clone()) }, at);
            }
            ExitStatus::ByLauncher { stopped: false } | ExitStatus::Stuck => {
                return blames(BlamedState::Running);
            }
            ExitStatus::Code(0) => return blames(BlamedState::EndedWell),
            ExitStatus::Code(_) | ExitStatus::Signal(_) => {}
        }
        if let Some(begin) = path.iter().position(|exit| exit.rank == culprit) {
            let circle = path[begin..].iter().min_by_key(|exit| (exit.after, exit.rank));
            let earliest = circle.copied().unwrap_or(at);
            return (earliest, Reason::Mutual, earliest);
        }
        path.push(blamed);
    }
}

/// Whether a worker ended in the same way as `root`, and not by another's fault. Exits without a message are
/// alike only at the same time: a later one may well be a victim that says nothing.
fn is_alike(exit: &WorkerExit, root: &WorkerExit) -> bool {
    let together = exit.error.is_some() || exit.after.abs_diff(root.after) <= AT_ONCE;
    exit.status.failed()
        && exit.blames().is_none()
        && exit.status == root.status
        && exit.error == root.error
        && together
}

fn ranks(exits: &[WorkerExit], filter: impl Fn(&WorkerExit) -> bool) -> Vec<Rank> {
    let mut ranks: Vec<Rank> = exits.iter().filter(|exit| filter(exit)).map(|exit| exit.rank).collect();
    ranks.sort_unstable();
    ranks
}

#[cfg(test)]
mod tests;
