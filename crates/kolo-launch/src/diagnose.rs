//! Finds the worker that failed first: its peers fail a moment later, often with clearer errors.
//!
//! [`diagnose`] is a pure decision over the exits of all workers. It starts from the first failure, allows
//! for exits that were noticed out of order, and then follows the blame: a worker whose error is "rank 1
//! died" points at rank 1. It claims nothing more. If several failed workers blame nobody, one may or may
//! not have caused the other's failure, and the report says so.

use std::cmp::Reverse;
use std::time::Duration;

use kolo_comm::Rank;
use signal_hook::consts::signal::{SIGABRT, SIGPIPE};

use crate::failure_report::{BlamedState, FailureReport, Reason};
use crate::worker_exit::{ExitStatus, SHELL_SIGNAL_BASE, WorkerExit, shell_code};

/// Time after the first exit within which the order of exits does not count. A process closes its
/// connections before its exit is noticed, so on a busy machine its victims may be noticed first.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Decides which worker failed first, independent of the order of `exits`. `None` if none failed by itself.
pub fn diagnose(exits: &[WorkerExit]) -> Option<FailureReport> {
    let mut failed: Vec<&WorkerExit> = exits.iter().filter(|exit| exit.status.failed()).collect();
    failed.sort_by_key(|exit| order(exit));
    let first = *failed.first()?;
    let at_once = failed.iter().take_while(|exit| exit.after <= first.after + AT_ONCE);
    // Picks the first of equals, unlike `max_by_key`, which picks the last.
    let start = *at_once.min_by_key(|exit| Reverse(clarity(exit))).unwrap_or(&first);
    let (root, reason, last_failed) = follow(start, first, exits);
    let other = |exit: &WorkerExit| exit.member != root.member;
    // After wrong input the others save their work and end for the same reason.
    let is_second = |exit: &WorkerExit| {
        let is_input = root.has_wrong_input() && exit.has_wrong_input();
        let is_later = exit.after > root.after + AT_ONCE;
        is_input && (is_later || exit.follows_wrong_input()) && !is_alike(exit, root)
    };
    // One that was ended may have said what it has saved.
    let has_said = |exit: &WorkerExit| match exit.status {
        ExitStatus::ByLauncher { .. } => exit.reported() && exit.error != root.error,
        status => status.failed(),
    };
    let mut said: Vec<&WorkerExit> = exits.iter().filter(|exit| has_said(exit)).collect();
    said.sort_by_key(|exit| order(exit));
    let victim = |exit: &WorkerExit| exit.blames().is_some() || !has_said(exit) || is_second(exit);
    // One message of several workers is printed once.
    let repeats = |exit: &WorkerExit| {
        let earlier = said.iter().take_while(|earlier| earlier.member != exit.member);
        exit.error.is_some() && earlier.filter(|it| other(it)).any(|earlier| earlier.error == exit.error)
    };
    let well = |exit: &WorkerExit| matches!(exit.status, ExitStatus::Code(0) | ExitStatus::Stuck);
    let is_apart = |exit: &WorkerExit| other(exit) && !victim(exit) && !is_alike(exit, root);
    let apart = said.iter().filter(|exit| is_apart(exit) && !repeats(exit));
    Some(FailureReport {
        root: root.clone(),
        reason,
        lost: Vec::new(),
        alike: ranks(exits, |exit| other(exit) && is_alike(exit, root)),
        apart: apart.map(|exit| (*exit).clone()).collect(),
        consequences: ranks(exits, |exit| {
            other(exit) && !well(exit) && (victim(exit) || is_apart(exit) && repeats(exit))
        }),
        stuck: ranks(exits, |exit| exit.status == ExitStatus::Stuck),
        exit_code: shell_code(match last_failed.status {
            ExitStatus::Code(code) => code,
            ExitStatus::Signal(signal) => SHELL_SIGNAL_BASE + signal,
            ExitStatus::ByLauncher { .. } | ExitStatus::Stuck => 1,
        }),
    })
}

/// Returns the order in which exits were noticed; ranks break ties.
fn order(exit: &WorkerExit) -> impl Ord + use<> {
    (exit.after, exit.rank.is_none(), exit.rank, exit.member.clone())
}

/// Rates how clearly an exit is the cause rather than a consequence.
fn clarity(exit: &WorkerExit) -> u8 {
    match exit.status {
        // A worker that blames another is not the cause by its own account.
        _ if exit.blames().is_some() => 0,
        // The end of a peer causes this signal in a program that does not expect it.
        ExitStatus::Signal(SIGPIPE) => 1,
        // An uncaught error causes SIGABRT, so it counts as little as an exit without a message.
        ExitStatus::Signal(signal) if signal != SIGABRT => 4,
        _ if exit.reported() && !exit.follows_wrong_input() => 3,
        _ => 2,
    }
}

/// Follows the blame from `start` to its end. Returns the worker to name, the reason, and the failed worker
/// whose exit code becomes the job's.
fn follow<'a>(
    start: &'a WorkerExit,
    first: &WorkerExit,
    exits: &'a [WorkerExit],
) -> (&'a WorkerExit, Reason, &'a WorkerExit) {
    let mut path = vec![start];
    loop {
        let at = path[path.len() - 1];
        let reason = match path.len() {
            1 if start.member == first.member => Reason::First,
            1 => Reason::Clearest,
            n => Reason::Blamed { by: path[n - 2].rank },
        };
        let failed = *path.iter().rfind(|exit| exit.status.failed()).unwrap_or(&start);
        let Some(culprit) = at.blames() else { return (at, reason, failed) };
        let blames = |state| (at, Reason::Blames { culprit, state }, failed);
        let Some(blamed) = exits.iter().find(|exit| exit.rank == Some(culprit)) else {
            return blames(BlamedState::Elsewhere);
        };
        match blamed.status {
            ExitStatus::ByLauncher { stopped: true } => {
                return (blamed, Reason::Stopped { noticed: Box::new(at.clone()) }, failed);
            }
            // The worker was about to end by itself and has reported its error.
            ExitStatus::ByLauncher { stopped: false } if blamed.reported() => {}
            ExitStatus::ByLauncher { stopped: false } | ExitStatus::Stuck => {
                return (blamed, Reason::Running { noticed: Box::new(at.clone()) }, failed);
            }
            ExitStatus::Code(0) => return blames(BlamedState::EndedWell),
            ExitStatus::Code(_) | ExitStatus::Signal(_) => {}
        }
        if let Some(begin) = path.iter().position(|exit| exit.rank == Some(culprit)) {
            let circle = path[begin..].iter().min_by_key(|exit| order(exit));
            let earliest = circle.copied().unwrap_or(at);
            return (earliest, Reason::Mutual, earliest);
        }
        path.push(blamed);
    }
}

/// Returns true if a worker ended in the same way as `root`, and blames nobody. Exits without a message are
/// alike only at the same time: a later one may be a victim without a message.
fn is_alike(exit: &WorkerExit, root: &WorkerExit) -> bool {
    let together = exit.error.is_some() || exit.after.abs_diff(root.after) <= AT_ONCE;
    exit.status.failed()
        && exit.blames().is_none()
        && exit.status == root.status
        && exit.error == root.error
        && together
}

fn ranks(exits: &[WorkerExit], filter: impl Fn(&WorkerExit) -> bool) -> Vec<Rank> {
    let mut ranks: Vec<Rank> =
        exits.iter().filter(|exit| filter(exit)).filter_map(|exit| exit.rank).collect();
    ranks.sort_unstable();
    ranks
}

#[cfg(test)]
mod tests;
