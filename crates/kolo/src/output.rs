//! What a command has to say, on the standard output.

use std::fmt;
use std::io::{ErrorKind, Write};
use std::sync::OnceLock;

use kolo::Failure;
use serde::Serialize;

/// The first error of the standard output but that its reader has gone.
static FAILED: OnceLock<std::io::Error> = OnceLock::new();

/// Prints a line on the standard output as `println!` does. Where that fails the command goes on, and
/// [`check`] tells: what it does besides counts for more than a line.
macro_rules! say {
    ($($argument:tt)*) => {
        $crate::output::line(format_args!($($argument)*))
    };
}
pub(crate) use say;

/// What [`say`] does.
pub(crate) fn line(words: fmt::Arguments<'_>) {
    // In one piece: other processes may write to the same file.
    match std::io::stdout().write_all(format!("{words}\n").as_bytes()) {
        // A reader that has closed its pipe has seen what it wanted.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let _ = FAILED.set(error);
        }
        _ => {}
    }
}

/// Whether all has been printed, for a command whose result is what it prints.
pub(crate) fn check() -> Result<(), Failure> {
    match FAILED.get() {
        Some(error) => Err(Failure::work(format!("cannot write to the output: {error}"))),
        None => Ok(()),
    }
}

/// Tells something on standard error. Where that fails nobody can be told.
pub(crate) fn note(words: &str) {
    let _ = std::io::stderr().write_all(format!("{words}\n").as_bytes());
}

/// Warns on standard error.
pub(crate) fn warn(words: &str) {
    note(&format!("warning: {words}"));
}

/// Prints a text. A reader that has closed its pipe has seen what it wanted.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(|e| Failure::work(format!("cannot write to the output: {e}"))),
    }
}

/// Prints a value as JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::work)?;
    print(&(text + "\n"))
}
