//! What a user must know of checkpoints though training goes on.

use std::fmt::Display;
use std::io::Write;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::Error;

/// What a user must know of checkpoints though training goes on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// A checkpoint could not be written.
    #[error("checkpoint not written: {0}; training goes on, the next checkpoint is another try")]
    NotWritten(#[source] Error),
    /// A checkpoint that is not to be kept could not be removed.
    #[error("an old checkpoint stays: {0}")]
    NotRemoved(#[source] Error),
}

/// The warnings of a writer that nobody has taken yet.
#[derive(Clone, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<Warning>>>);

impl Warnings {
    /// Tells the user, and keeps it.
    pub(crate) fn add(&self, warning: Warning) {
        tell(&warning);
        self.0.lock().push(warning);
    }

    pub(crate) fn take(&self) -> Vec<Warning> {
        std::mem::take(&mut self.0.lock())
    }
}

/// Tells the program's logger, or, where there is none that listens to anything, stderr: what a user must
/// know is heard in any case.
pub fn tell(warning: &dyn Display) {
    match log::max_level() {
        // Nobody may read it, and training goes on nevertheless.
        log::LevelFilter::Off => {
            let _ = std::io::stderr().write_all(format!("warning: {warning}\n").as_bytes());
        }
        _ => log::warn!("{warning}"),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The test runs itself as a program, which has no logger.
    #[test]
    fn a_warning_without_a_logger_goes_to_stderr() {
        const CHILD: &str = "KOLO_TEST_WARNS";
        if std::env::var_os(CHILD).is_some() {
            return tell(&"the disk is full");
        }
        let name = "warning::tests::a_warning_without_a_logger_goes_to_stderr";
        let mut program = Command::new(std::env::current_exe().unwrap());
        let output = program.args([name, "--exact", "--nocapture"]).env(CHILD, "1").output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(words.matches("warning: the disk is full").count(), 1, "{words}");
    }
}
