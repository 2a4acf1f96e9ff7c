//! How one worker ended, as the launcher saw it, and the exit codes by which shells tell it.

use std::fmt;
use std::time::Duration;

use kolo_comm::Rank;

use crate::error_file::WorkerError;

/// Shells give a command that a signal killed the exit code 128 + signal.
pub(crate) const SHELL_SIGNAL_BASE: i32 = 128;

/// How one worker ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerExit {
    /// The worker's rank; in an elastic job that in its newest generation, and `None` for a worker that does
    /// not belong to that.
    pub rank: Option<Rank>,
    /// The worker's name in its job, which no other worker has, before it or after.
    pub member: String,
    /// Its process.
    pub pid: i32,
    /// When its end was noticed, from the start of the job. Workers whose ends were noticed together have
    /// the same time.
    pub after: Duration,
    /// How it ended.
    pub status: ExitStatus,
    /// What it said before.
    pub error: Option<WorkerError>,
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// By itself, with this exit code.
    Code(i32),
    /// Killed by this signal, which the launcher did not send.
    Signal(i32),
    /// The launcher ended it.
    ByLauncher {
        /// It was stopped (SIGSTOP, a debugger) when the launcher ended it.
        stopped: bool,
    },
    /// The launcher killed it, but it has not ended: the kernel holds on to it.
    Stuck,
}

impl ExitStatus {
    /// Whether the worker failed by itself: not well, and not because the launcher ended it.
    pub fn failed(self) -> bool {
        match self {
            ExitStatus::Code(code) => code != 0,
            ExitStatus::Signal(_) => true,
            ExitStatus::ByLauncher { .. } | ExitStatus::Stuck => false,
        }
    }
}

impl WorkerExit {
    /// The other rank that this one's error blames.
    pub(crate) fn blames(&self) -> Option<Rank> {
        self.error.as_ref()?.culprit.filter(|culprit| Some(*culprit) != self.rank)
    }

    /// Whether it told its launcher an error of its own.
    pub(crate) fn reported(&self) -> bool {
        self.error.as_ref().is_some_and(|error| error.reported)
    }

    /// `rank 1`, or `worker node0/1.2` where it has no rank.
    pub(crate) fn name(&self) -> String {
        worker_name(self.rank, &self.member)
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExitStatus::Code(code) => write!(f, "exited with code {code}"),
            ExitStatus::Signal(signal) => write!(f, "was killed by {}", signal_name(*signal)),
            ExitStatus::ByLauncher { stopped: false } => write!(f, "was ended"),
            ExitStatus::ByLauncher { stopped: true } => write!(f, "stood still and was ended"),
            ExitStatus::Stuck => write!(f, "could not be ended"),
        }
    }
}

/// `rank 1`, or `worker node0/1.2` where it has no rank.
pub(crate) fn worker_name(rank: Option<Rank>, member: &str) -> String {
    rank.map_or_else(|| format!("worker {member}"), |rank| rank.to_string())
}

/// `SIGKILL` for 9; `signal 40` for one without a name.
pub(crate) fn signal_name(signal: i32) -> String {
    match signal_hook::low_level::signal_name(signal) {
        Some(name) => name.into(),
        None => format!("signal {signal}"),
    }
}

/// A code for a shell, which has eight bits: 1 in place of one that does not fit, or would say "all is well".
pub(crate) fn shell_code(code: i32) -> u8 {
    u8::try_from(code).ok().filter(|code| *code != 0).unwrap_or(1)
}
