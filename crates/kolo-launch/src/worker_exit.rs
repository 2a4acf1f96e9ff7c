//! The exit of one worker as the launcher observed it, and the exit codes that shells use for it.

use std::fmt;
use std::time::Duration;

use kolo_comm::Rank;
use signal_hook::consts::signal::SIGTERM;

use crate::error_file::{FailureKind, WorkerError};

/// Shells report a command that a signal killed with exit code 128 + signal.
pub(crate) const SHELL_SIGNAL_BASE: i32 = 128;

/// The exit of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerExit {
    /// Rank of the worker; in an elastic job its rank in the newest generation, or `None` if it is not a
    /// member.
    pub rank: Option<Rank>,
    /// Name of the worker, unique in the whole life of its job.
    pub member: String,
    /// Process id.
    pub pid: i32,
    /// Time from the start of the job until the exit was noticed. Exits that were noticed together have the
    /// same time.
    pub after: Duration,
    /// Status of the exit.
    pub status: ExitStatus,
    /// Reason for which Kolo killed it while the others continued, as the end of a sentence that begins with
    /// its name; `None` if Kolo did not.
    pub evicted: Option<String>,
    /// Error that it reported or printed before.
    pub error: Option<WorkerError>,
}

/// Exit status of a worker that was asked to end with all others, as a shell reports SIGTERM. Such a worker
/// is not replaced.
pub(crate) const TERMINATED: ExitStatus = ExitStatus::Code(SHELL_SIGNAL_BASE + SIGTERM);

/// Exit status of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// It exited by itself with this code.
    Code(i32),
    /// This signal killed it; the launcher did not send the signal.
    Signal(i32),
    /// The launcher ended it.
    ByLauncher {
        /// True if it was stopped (SIGSTOP, a debugger) when the launcher ended it.
        stopped: bool,
    },
    /// The launcher killed it, but the kernel does not release it.
    Stuck,
}

impl ExitStatus {
    /// Returns true if the worker failed by itself: it did not end well, and the launcher did not end it.
    pub fn failed(self) -> bool {
        match self {
            ExitStatus::Code(code) => code != 0,
            ExitStatus::Signal(_) => true,
            ExitStatus::ByLauncher { .. } | ExitStatus::Stuck => false,
        }
    }
}

impl WorkerExit {
    /// Returns the other rank that this worker's error blames.
    pub(crate) fn blames(&self) -> Option<Rank> {
        self.error.as_ref()?.culprit.filter(|culprit| Some(*culprit) != self.rank)
    }

    /// Returns true if the worker reported an error to its launcher.
    pub(crate) fn reported(&self) -> bool {
        self.error.as_ref().is_some_and(|error| error.reported)
    }

    /// Returns true if the worker reported that the user's input is wrong.
    pub(crate) fn has_wrong_input(&self) -> bool {
        self.error.as_ref().is_some_and(|error| error.kind == Some(FailureKind::WrongInput))
    }

    /// Returns true if the worker saved its work and ended because another one's input is wrong.
    pub(crate) fn follows_wrong_input(&self) -> bool {
        self.has_wrong_input() && self.status == ExitStatus::Code(1)
    }

    /// Returns `rank 1`, or `worker node0/1.2` if it has no rank.
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

/// Returns `rank 1`, or `worker node0/1.2` without a rank.
pub(crate) fn worker_name(rank: Option<Rank>, member: &str) -> String {
    rank.map_or_else(|| format!("worker {member}"), |rank| rank.to_string())
}

/// Returns `SIGKILL` for 9, and `signal 40` for a signal without a name.
pub(crate) fn signal_name(signal: i32) -> String {
    match signal_hook::low_level::signal_name(signal) {
        Some(name) => name.into(),
        None => format!("signal {signal}"),
    }
}

/// Converts a code to a shell's eight bits: 1 for codes that do not fit, or that would mean success.
pub(crate) fn shell_code(code: i32) -> u8 {
    u8::try_from(code).ok().filter(|code| *code != 0).unwrap_or(1)
}
