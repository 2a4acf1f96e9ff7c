//! How this program fails: one clear message, once, and an exit code that is not 0.

use std::process::ExitCode;

use kolo_comm::Rank;
use kolo_launch::LaunchError;

/// The exit code that shells give to a program which SIGTERM has ended.
const TERMINATED: u8 = 128 + 15;

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    /// The rank at fault, if it is not this process's.
    culprit: Option<Rank>,
    code: u8,
    /// Whether the launcher shows the message, so that this process need not.
    spoken_by_launcher: bool,
}

impl Failure {
    /// A wrong input; exit code 2, as clap's own.
    pub(crate) fn input(message: impl std::fmt::Display) -> Self {
        Failure { code: 2, ..Failure::work(message) }
    }

    /// Something went wrong on the way; exit code 1.
    pub(crate) fn work(message: impl std::fmt::Display) -> Self {
        Failure { message: message.to_string(), culprit: None, code: 1, spoken_by_launcher: false }
    }

    /// Adds a line that says how to go on.
    pub(crate) fn advise(mut self, line: impl std::fmt::Display) -> Self {
        self.message += &format!("\n  {line}");
        self
    }

    /// Reports the failure to the launcher, which collects those of all workers and shows the one that
    /// matters.
    pub(crate) fn of_worker(mut self) -> Self {
        let launched = std::env::var_os(kolo_comm::env::ERROR_FILE).is_some();
        self.spoken_by_launcher =
            launched && kolo_launch::report_failure(&self.message, self.culprit).is_ok();
        self
    }

    /// Prints the message, unless the launcher does, and returns the exit code.
    pub(crate) fn end(self) -> ExitCode {
        if !self.spoken_by_launcher {
            eprintln!("error: {}", self.message);
        }
        ExitCode::from(self.code)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<kolo_train::Error> for Failure {
    fn from(error: kolo_train::Error) -> Self {
        use kolo_train::Error::{EndedEarly, Training};
        let culprit = match &error {
            Training(kolo_ddp::Error::Comm(error)) => error.culprit(),
            _ => None,
        };
        let code = match &error {
            error if error.is_input() => 2,
            EndedEarly { too_few: None, .. } => TERMINATED,
            _ => 1,
        };
        Failure { culprit, code, ..Failure::work(&error) }
    }
}

impl From<kolo_ddp::Error> for Failure {
    fn from(error: kolo_ddp::Error) -> Self {
        kolo_train::Error::from(error).into()
    }
}

impl From<kolo_comm::Error> for Failure {
    fn from(error: kolo_comm::Error) -> Self {
        kolo_train::Error::from(error).into()
    }
}

impl From<LaunchError> for Failure {
    fn from(error: LaunchError) -> Self {
        Failure { code: error.exit_code(), ..Failure::work(error) }
    }
}

/// Makes a worker's panic part of the launcher's report.
pub(crate) fn report_panics() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        default(info);
        // If the report cannot be written, the message above is all there is.
        let _ = kolo_launch::report_failure(&format!("panic: {info}"), None);
    }));
}
