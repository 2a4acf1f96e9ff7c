//! Errors of a job.

use std::ffi::OsString;
use std::io;

use kolo_elastic::Obstacle;
use signal_hook::consts::signal::SIGTERM;

use crate::error_file::FailureKind;
use crate::failure_report::FailureReport;
use crate::worker_exit::{SHELL_SIGNAL_BASE, shell_code, signal_name};

/// An error that prevented a job's start or ended it. No process is left when it is returned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum LaunchError {
    /// The job's description is inconsistent.
    #[error("{what}; {remedy}")]
    Invalid { what: String, remedy: String },
    /// An environment variable, or the token that it names, is wrong.
    #[error("{0}")]
    Variable(kolo_comm::Error),
    /// Another program listens on the given port.
    #[error(
        "port {port} on {host} is in use by another program; choose another one (--master, --master-port), or leave it \
         out, and Kolo takes a free one"
    )]
    PortInUse { host: String, port: u16 },
    /// The master's address or port cannot be used.
    #[error(
        "the workers cannot meet at {host}: {cause}; check --master (or --master-addr and --master-port)"
    )]
    Master { host: String, cause: io::Error },
    /// This launcher cannot take part in a job of several nodes.
    #[error("this node cannot take part in the job: {why}")]
    Launchers { why: String },
    /// The launchers of a job have lost each other, and this one may not continue.
    #[error(
        "this node ends its workers, because other nodes of the job continue, or may continue: {why}. If none does, \
         start all nodes again: with --resume-or-start, `kolo train` continues from the last checkpoint, if there \
         is one. --arbiter lets either one of two equal nodes continue"
    )]
    Superseded { why: String },
    /// A worker of another node lacks what it needs to begin, so the job does not begin.
    #[error("the job does not begin, because of {}", obstacle.reason)]
    CannotBegin { obstacle: Obstacle },
    /// The program cannot be started.
    #[error("cannot start `{}`: {hint}", program.to_string_lossy())]
    Program { program: OsString, hint: String, cause: io::Error },
    /// The operating system refused another operation.
    #[error("{what}: {cause}")]
    System { what: String, cause: io::Error },
    /// A worker failed, and the launcher ended the others.
    #[error("{0}")]
    Failed(Box<FailureReport>),
    /// A signal to the launcher ended the job.
    #[error("ended by {}{}", signal_name(*.signal), lines(.reports))]
    Interrupted { signal: i32, reports: Vec<String>, kind: Option<FailureKind> },
    /// All workers have ended because they were asked to, by a signal to them or a limit of time.
    #[error("{report}")]
    Asked { report: String, kind: Option<FailureKind> },
}

fn lines(reports: &[String]) -> String {
    reports.iter().map(|report| format!("\n  {}", report.replace('\n', "\n    "))).collect()
}

impl LaunchError {
    /// Returns the code with which the launcher should exit; never 0.
    ///
    /// The failed worker's code as a shell reports it, that is its exit code or 128 + its signal. 126 or 127
    /// if the program cannot be executed or found, 128 + signal if the launcher was interrupted, 2 for an
    /// inconsistent job, and 1 for everything else.
    pub fn exit_code(&self) -> u8 {
        match self {
            LaunchError::Failed(report) => report.exit_code,
            LaunchError::Interrupted { signal, .. } => shell_code(SHELL_SIGNAL_BASE + signal),
            LaunchError::Asked { .. } => shell_code(SHELL_SIGNAL_BASE + SIGTERM),
            LaunchError::Program { cause, .. } if cause.kind() == io::ErrorKind::NotFound => 127,
            LaunchError::Program { .. } => 126,
            LaunchError::Invalid { .. } | LaunchError::Variable(_) => 2,
            LaunchError::CannotBegin { obstacle } if obstacle.is_input => 2,
            _ => 1,
        }
    }

    /// Returns the kind of the workers' failure, if they have reported one.
    pub fn kind(&self) -> Option<FailureKind> {
        match self {
            LaunchError::Failed(report) => report.kind(),
            LaunchError::Interrupted { kind, .. } | LaunchError::Asked { kind, .. } => *kind,
            LaunchError::CannotBegin { obstacle } => Some(match obstacle.is_input {
                true => FailureKind::WrongInput,
                false => FailureKind::NoRoom,
            }),
            _ => None,
        }
    }

    /// Creates a [`LaunchError::System`]; `what` is the attempted operation.
    pub(crate) fn system(what: impl Into<String>, cause: impl Into<io::Error>) -> Self {
        LaunchError::System { what: what.into(), cause: cause.into() }
    }
}
