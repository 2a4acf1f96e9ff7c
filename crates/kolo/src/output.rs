//! What a command has to say, on the standard output.

use std::io::{ErrorKind, Write};

use kolo::Failure;
use serde::Serialize;

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
