//! Which worker began? When one fails, its peers fail a moment later, and often say so louder.
//!
//! [`verdict`] is a pure decision over how all workers ended. It starts from the first failure, allows for
//! ends that were noticed out of order, and then follows the blame: a worker that reports "rank 1 died" points
//! at rank 1.

use std::cmp::Reverse;
use std::time::Duration;

use kolo_comm::Rank;
use signal_hook::consts::signal::{SIGABRT, SIGPIPE};

use crate::error::shell_code;
use crate::exit::{End, Exit, SHELL_SIGNAL_BASE};

/// Ends this close to the first are not told apart by time: a process closes its connections before it is
/// seen to have ended, so that on a busy machine its victims may be seen first.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Who began, why it is taken to be that one, and what became of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The worker to name first.
    pub root: Exit,
    /// Why that one.
    pub reason: Reason,
    /// Workers to which the same happened by themselves: they blame nobody, and ended in the same way.
    pub alike: Vec<Rank>,
    /// Workers that ended because of it, by their own error or by the launcher.
    pub consequences: Vec<Rank>,
    /// Workers that could not be ended.
    pub stuck: Vec<Rank>,
    /// The code for the launcher to exit with, 1 … 255.
    pub exit_code: u8,
}

/// Why a worker is taken to be the one that began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It failed before all others.
    First,
    /// It failed with others at once, and its end speaks the clearest: a fatal signal before an error of its
    /// own, that before an exit without a word, that before an error that blames another.
    Clearest,
    /// It failed, and this failed worker's report led to it.
    Blamed {
        /// The worker that led to it.
        by: Rank,
    },
    /// It stood still, and this failed worker waited for it in vain.
    StoodStill {
        /// The worker that waited, with its report.
        noticed: Box<Exit>,
    },
    /// It failed, and blames a worker that did not.
    Blames {
        /// The worker it blames.
        culprit: Rank,
        /// What that one was doing.
        standing: Standing,
    },
    /// It failed first of several that blame each other.
    Mutual,
}

/// What a blamed worker that did not fail was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It was running until the launcher ended it.
    Running,
    /// It had ended well.
    EndedWell,
    /// It is not a worker of this node.
    Elsewhere,
}

/// Decides which worker began. `None` if none failed by itself.
///
/// The order of `exits` does not matter.
pub fn verdict(exits: &[Exit]) -> Option<Verdict> {
    let mut failed: Vec<&Exit> = exits.iter().filter(|exit| exit.end.failed()).collect();
    failed.sort_by_key(|exit| (exit.after, exit.rank));
    let first = *failed.first()?;
    let at_once = failed.iter().take_while(|exit| exit.after <= first.after + AT_ONCE);
    // Of equals the first: `max_by_key` would give the last.
    let start = *at_once.min_by_key(|exit| Reverse(clarity(exit))).unwrap_or(&first);
    let (root, reason, speaker) = follow(start, first, exits);
    Some(Verdict {
        root: root.clone(),
        reason,
        alike: ranks(exits, |exit| exit.rank != root.rank && is_alike(exit, root)),
        consequences: ranks(exits, |exit| {
            let well = matches!(exit.end, End::Code(0) | End::Stuck);
            exit.rank != root.rank && !well && !is_alike(exit, root)
        }),
        stuck: ranks(exits, |exit| exit.end == End::Stuck),
        exit_code: shell_code(match speaker.end {
            End::Code(code) => code,
            End::Signal(signal) => SHELL_SIGNAL_BASE + signal,
            End::ByLauncher { .. } | End::Stuck => 1,
        }),
    })
}

/// How clearly an end speaks for being the cause rather than a consequence.
fn clarity(exit: &Exit) -> u8 {
    match exit.end {
        // Whoever blames another says itself that it did not begin.
        _ if exit.blames().is_some() => 0,
        // A peer's end does this to a program that does not expect it …
        End::Signal(SIGPIPE) => 1,
        // … and an uncaught error does that.
        End::Signal(signal) if signal != SIGABRT => 4,
        _ if exit.failure.is_some() => 3,
        _ => 2,
    }
}

/// From `start` along the blame to where it ends. Gives the worker to name, why, and the failed worker whose
/// exit code speaks for the job.
fn follow<'a>(start: &'a Exit, first: &Exit, exits: &'a [Exit]) -> (&'a Exit, Reason, &'a Exit) {
    let mut path = vec![start];
    loop {
        let at = path[path.len() - 1];
        let reason = match path.len() {
            1 if start.rank == first.rank => Reason::First,
            1 => Reason::Clearest,
            n => Reason::Blamed { by: path[n - 2].rank },
        };
        let Some(culprit) = at.blames() else { return (at, reason, at) };
        let blames = |standing| (at, Reason::Blames { culprit, standing }, at);
        let Some(blamed) = exits.iter().find(|exit| exit.rank == culprit) else {
            return blames(Standing::Elsewhere);
        };
        match blamed.end {
            End::ByLauncher { stopped: true } => {
                return (blamed, Reason::StoodStill { noticed: Box::new(at.clone()) }, at);
            }
            End::ByLauncher { stopped: false } | End::Stuck => return blames(Standing::Running),
            End::Code(0) => return blames(Standing::EndedWell),
            End::Code(_) | End::Signal(_) => {}
        }
        if let Some(begin) = path.iter().position(|exit| exit.rank == culprit) {
            let circle = path[begin..].iter().min_by_key(|exit| (exit.after, exit.rank));
            let earliest = circle.copied().unwrap_or(at);
            return (earliest, Reason::Mutual, earliest);
        }
        path.push(blamed);
    }
}

/// Ended in the same way, and not by another's fault. Ends without a word are alike only at the same time:
/// a later one may well be a victim that says nothing.
fn is_alike(exit: &Exit, root: &Exit) -> bool {
    let together = exit.failure.is_some() || exit.after.abs_diff(root.after) <= AT_ONCE;
    exit.end.failed()
        && exit.blames().is_none()
        && exit.end == root.end
        && exit.failure == root.failure
        && together
}

fn ranks(exits: &[Exit], filter: impl Fn(&Exit) -> bool) -> Vec<Rank> {
    let mut ranks: Vec<Rank> = exits.iter().filter(|exit| filter(exit)).map(|exit| exit.rank).collect();
    ranks.sort_unstable();
    ranks
}

#[cfg(test)]
mod tests;
