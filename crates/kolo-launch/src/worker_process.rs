//! A worker on this node, as the head of its process group.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, SystemTime};

use kolo_comm::Rank;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use signal_hook::consts::signal::SIGKILL;

use crate::error_file::{self, FailureKind, WorkerError};
use crate::stopped_time::StoppedTime;
use crate::worker_exit::ExitStatus;

#[derive(Debug)]
pub(crate) struct WorkerProcess {
    /// Rank at the start of the worker. An elastic job may have changed it since.
    pub rank: Rank,
    pub child: Child,
    pub pid: Pid,
    pub pidfd: OwnedFd,
    pub error_file: PathBuf,
    pub exit: Option<(Duration, ExitStatus)>,
    /// Rank among the workers of this node.
    pub local_rank: usize,
    /// True if the worker is a summation server.
    pub is_server: bool,
    /// Name as a member of an elastic job.
    pub member: String,
    /// True if the coordinator knows that the worker has ended.
    pub reported: bool,
    /// True if the worker failed, and the others have continued.
    pub survived: bool,
    /// True if it did not leave its group in good order when the launcher asked it to end: the signal or an
    /// error ended it.
    pub broke_off: bool,
    /// Reason for which Kolo has killed it while the others continue, as the end of a sentence that begins
    /// with its name.
    pub evicted: Option<String>,
    /// True if the worker was stopped when the launcher asked it to end.
    pub stopped: bool,
    /// True if the coordinator knows that a signal has stopped it.
    pub reported_stopped: bool,
    pub stopped_time: StoppedTime,
}

impl WorkerProcess {
    /// Returns the exit status, if known.
    pub fn status(&self) -> Option<ExitStatus> {
        self.exit.map(|(_, status)| status)
    }

    /// Kills the worker while the others continue, for this reason.
    pub fn evict(&mut self, reason: String) {
        signal_group(self.pid, Signal::KILL);
        self.evicted.get_or_insert(reason);
    }

    /// Describes its end, as the end of a sentence that begins with its name.
    pub fn how(&self, status: ExitStatus) -> String {
        match self.evicted.as_ref().filter(|_| status == ExitStatus::Signal(SIGKILL)) {
            Some(reason) => format!("{reason}, and was killed by Kolo"),
            None => status.to_string(),
        }
    }

    /// Returns the message of its error file, formatted for the rest of a line.
    pub fn error_message(&self) -> Option<String> {
        self.error().map(|error| error.message.replace('\n', "\n    "))
    }

    /// Returns the kind of the failure that it has reported.
    pub fn failure_kind(&self) -> Option<FailureKind> {
        self.error()?.kind
    }

    fn error(&self) -> Option<WorkerError> {
        error_file::read(&self.error_file, self.pid.as_raw_nonzero().get(), SystemTime::now())
    }

    /// Polls the kernel for the exit status, and leaves the process's entry in the kernel's table.
    pub fn poll(&self) -> io::Result<Option<ExitStatus>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.pid), options)?;
        Ok(status.and_then(|status| {
            let signal = status.terminating_signal().map(ExitStatus::Signal);
            signal.or(status.exit_status().map(ExitStatus::Code))
        }))
    }

    /// Returns true if a signal or a debugger has stopped the worker.
    pub fn is_stopped(&self) -> bool {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(waitid(WaitId::Pid(self.pid), options), Ok(Some(status)) if status.stopped())
    }
}

/// Sends a signal to a group. A group without members cannot receive one, and need not.
pub(crate) fn signal_group(group: Pid, signal: Signal) {
    let _ = kill_process_group(group, signal);
}
