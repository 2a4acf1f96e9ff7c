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
    /// The worker.
    pub rank: Rank,
    /// Its process.
    pub pid: i32,
    /// When its end was noticed, from the start of the job. Workers whose ends were noticed together have
    /// the same time.
    pub after: Duration,
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote into its error file before, if it did.
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
        self.error.as_ref()?.culprit.filter(|culprit| *culprit != self.rank)
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
