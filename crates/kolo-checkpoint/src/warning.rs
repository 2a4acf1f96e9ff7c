//! Warnings about checkpoints.

use std::fmt::Display;
use std::io::Write;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::Error;

/// Problem with checkpoints that does not stop training, but that the user must know.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// A checkpoint could not be written.
    #[error(
        "Kolo could not write a checkpoint: {0}; training continues, and the next checkpoint is another try"
    )]
    NotWritten(#[source] Error),
    /// A surplus checkpoint could not be removed.
    #[error("an old checkpoint stays: {0}")]
    NotRemoved(#[source] Error),
}

/// Warnings of a writer that the program has not taken yet.
#[derive(Clone, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<Warning>>>);

impl Warnings {
    pub(crate) fn add(&self, warning: Warning) {
        tell(&warning);
        self.0.lock().push(warning);
    }

    pub(crate) fn take(&self) -> Vec<Warning> {
        std::mem::take(&mut self.0.lock())
    }
}

/// Logs a warning through the program's logger, or to stderr if logging is off: the user must see it.
pub fn tell(warning: &dyn Display) {
    match log::max_level() {
        // Ignore errors: stderr may be closed, and training continues anyway.
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

    /// The test runs itself as a program without a logger.
    #[test]
    fn a_warning_without_a_logger_goes_to_stderr() {
        const CHILD: &str = "KOLO_TEST_WARNS";
        if std::env::var_os(CHILD).is_some() {
            return tell(&"the disk is full");
        }
        let name = "warning::tests::a_warning_without_a_logger_goes_to_stderr";
        let mut program = Command::new(std::env::current_exe().unwrap());
        let output = program.args([name, "--exact", "--nocapture"]).env(CHILD, "1").output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(stderr.matches("warning: the disk is full").count(), 1, "{stderr}");
    }
}
