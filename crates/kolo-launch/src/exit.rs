//! How one worker ended, as the launcher saw it.

use std::fmt;
use std::time::Duration;

use kolo_comm::Rank;

use crate::report::Failure;

/// Shells give a command that a signal killed the exit code 128 + signal.
pub(crate) const SHELL_SIGNAL_BASE: i32 = 128;

/// How one worker ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The worker.
    pub rank: Rank,
    /// Its process.
    pub pid: i32,
    /// When its end was noticed, from the start of the job. Workers whose ends were noticed together have
    /// the same time.
    pub after: Duration,
    /// How it ended.
    pub end: End,
    /// What it reported before, if it did.
    pub failure: Option<Failure>,
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, with this exit code.
    Code(i32),
    /// Killed by this signal, which the launcher did not send.
    Signal(i32),
    /// The launcher ended it.
    ByLauncher {
        /// It stood still (SIGSTOP, a debugger) when the launcher turned to it.
        stopped: bool,
    },
    /// It still has not ended: the launcher killed it, but the kernel holds on to it.
    Stuck,
}

impl End {
    /// Whether the worker failed by itself: not well, and not because the launcher ended it.
    pub fn failed(self) -> bool {
        match self {
            End::Code(code) => code != 0,
            End::Signal(_) => true,
            End::ByLauncher { .. } | End::Stuck => false,
        }
    }
}

impl Exit {
    /// Another rank that this one holds responsible for its failure.
    pub(crate) fn blames(&self) -> Option<Rank> {
        self.failure.as_ref()?.culprit.filter(|culprit| *culprit != self.rank)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Code(code) => write!(f, "exited with code {code}"),
            End::Signal(signal) => write!(f, "was killed by {}", signal_name(*signal)),
            End::ByLauncher { stopped: false } => write!(f, "was ended"),
            End::ByLauncher { stopped: true } => write!(f, "stood still and was ended"),
            End::Stuck => write!(f, "could not be ended"),
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
