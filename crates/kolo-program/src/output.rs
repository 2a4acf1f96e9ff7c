//! Messages of a command, on standard output and standard error.

use std::fmt;
use std::io::{ErrorKind, Write};
use std::sync::OnceLock;
use std::time::SystemTime;

use kolo_launch::UnblockedStderr;
pub use kolo_run_folder::{in_line, in_lines};
use serde::Serialize;

use crate::failure::Failure;

/// The first error of the standard output. A closed pipe does not count.
static FAILED: OnceLock<std::io::Error> = OnceLock::new();

/// Prints a line on the standard output as `println!` does. After an error the command continues, because its
/// work counts for more than a line; [`check`] returns the error later.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => {
        $crate::output::line(format_args!($($argument)*))
    };
}
pub use say;

/// Implements [`say`].
pub fn line(words: fmt::Arguments<'_>) {
    // One write for the whole line, because other processes may write to the same file.
    match std::io::stdout().write_all(format!("{words}\n").as_bytes()) {
        // A reader that closes its pipe has seen enough.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let _ = FAILED.set(error);
        }
        _ => {}
    }
}

/// Returns the first error of [`say`], for commands whose result is their output.
///
/// # Errors
///
/// A line could not be written.
pub fn check() -> Result<(), Failure> {
    match FAILED.get() {
        Some(error) => Err(Failure::work(format!("cannot write to the output: {error}"))),
        None => Ok(()),
    }
}

/// Prints a message on standard error, without waiting for its reader. Control characters in it, as names of
/// files may have them, become escapes. A failure is ignored: there is nowhere to report it.
pub fn note(words: &str) {
    let _ = UnblockedStderr.write_all(format!("{}\n", in_lines(words)).as_bytes());
}

/// Prints a warning on standard error.
pub fn warn(words: &str) {
    note(&format!("warning: {words}"));
}

/// Prints a text. A closed pipe is no error: its reader has seen enough.
///
/// # Errors
///
/// The text cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(|e| Failure::work(format!("cannot write to the output: {e}"))),
    }
}

/// Returns an event of a command with `--json` or `--log-format json`: a line on standard error.
pub fn event(kind: &str, message: &str) -> serde_json::Value {
    let time = kolo_run_folder::unix_seconds(SystemTime::now());
    serde_json::json!({ "time_unix": time, "event": kind, "message": message })
}

/// Prints a value as JSON.
///
/// # Errors
///
/// The value cannot be encoded or written.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::work)?;
    print(&(text + "\n"))
}
