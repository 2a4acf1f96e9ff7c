//! Why a job did not end well.

use std::ffi::OsString;
use std::io;

use crate::failure_report::FailureReport;
use crate::worker_exit::{SHELL_SIGNAL_BASE, shell_code, signal_name};

/// Why a job could not be started, or did not end well. No process is left when it is returned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The job's description contradicts itself.
    #[error("{what}; {remedy}")]
    Invalid {
        /// What is wrong.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// Another program listens on the given port.
    #[error(
        "port {port} on {host} is in use by another program; choose another one (--master, --master-port), or leave it \
         out to have a free one taken"
    )]
    PortInUse {
        /// The host of rank 0.
        host: String,
        /// The port asked for.
        port: u16,
    },
    /// The master's address or port cannot be used.
    #[error(
        "the workers cannot meet at {host}: {cause}; check --master (or --master-addr and --master-port)"
    )]
    Master {
        /// The host of rank 0.
        host: String,
        /// The operating system's words.
        cause: io::Error,
    },
    /// This launcher cannot take part in a job of several nodes.
    #[error("this node cannot take part in the job: {why}")]
    Launchers {
        /// What is wrong, and the remedy.
        why: String,
    },
    /// The launchers of a job have lost each other, and this one may not go on.
    #[error(
        "this node's workers are ended, because others of the job go on or may: {why}. If none does, go on from the \
         last checkpoint (kolo train --resume RUN_FOLDER)"
    )]
    Superseded {
        /// Who goes on, or why others may.
        why: String,
    },
    /// The program cannot be started.
    #[error("cannot start `{}`: {hint}", program.to_string_lossy())]
    Program {
        /// The program.
        program: OsString,
        /// What is wrong with it, and the remedy.
        hint: String,
        /// The operating system's words.
        cause: io::Error,
    },
    /// The operating system refused something else.
    #[error("{what}: {cause}")]
    System {
        /// What was tried.
        what: String,
        /// The operating system's words.
        cause: io::Error,
    },
    /// A worker failed, and the others were ended.
    #[error("{0}")]
    Failed(Box<FailureReport>),
    /// A signal to the launcher ended the job.
    #[error("ended by {}{}", signal_name(*.signal), lines(.reports))]
    Interrupted {
        /// The signal's number.
        signal: i32,
        /// What workers have reported of their end, each with the worker's name before it.
        reports: Vec<String>,
    },
}

/// Each on a line of its own.
fn lines(reports: &[String]) -> String {
    reports.iter().map(|report| format!("\n  {}", report.replace('\n', "\n    "))).collect()
}

impl LaunchError {
    /// The code with which the launcher should exit; never 0.
    ///
    /// That of the worker that failed, as a shell would give it: its exit code, or 128 + its signal. 126 and
    /// 127 for a program that cannot be executed or found, 128 + signal when the launcher was interrupted,
    /// 2 for a job that contradicts itself, 1 for everything else.
    pub fn exit_code(&self) -> u8 {
        match self {
            LaunchError::Failed(report) => report.exit_code,
            LaunchError::Interrupted { signal, .. } => shell_code(SHELL_SIGNAL_BASE + signal),
            LaunchError::Program { cause, .. } if cause.kind() == io::ErrorKind::NotFound => 127,
            LaunchError::Program { .. } => 126,
            LaunchError::Invalid { .. } => 2,
            _ => 1,
        }
    }

    /// A [`LaunchError::System`]: `what` was tried.
    pub(crate) fn system(what: impl Into<String>, cause: impl Into<io::Error>) -> Self {
        LaunchError::System { what: what.into(), cause: cause.into() }
    }
}
