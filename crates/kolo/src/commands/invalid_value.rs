//! Sentences in place of the parser's own texts, for a value that is no number.

use std::error::Error as _;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};

use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Replaces the text of Rust's or clap's parser of numbers; any other error stays.
pub(super) fn in_words(error: Error) -> Error {
    let expected = error.source().and_then(expected);
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    };
    match (expected, text(ContextKind::InvalidValue), text(ContextKind::InvalidArg)) {
        (Some(expected), Some(value), Some(option)) => Error::raw(
            ErrorKind::ValueValidation,
            format!(
                "invalid value '{value}' for '{option}': {expected}\n\nFor more information, try '--help'.\n"
            ),
        ),
        _ => error,
    }
}

/// Returns what is expected in place of a value that is no number, or not one of the type.
fn expected(cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(cause) = cause.downcast_ref::<ParseIntError>() {
        return Some(match cause.kind() {
            IntErrorKind::PosOverflow => "it is too large; give a smaller whole number".into(),
            _ => "give a whole number, at least 0".into(),
        });
    }
    if cause.is::<ParseFloatError>() {
        return Some("give a number".into());
    }
    let text = cause.to_string();
    let (first, last) = text.split_once(" is not in ")?.1.split_once("..=")?;
    Some(format!("give a whole number from {first} to {last}"))
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command, CommandFactory};

    use super::super::Cli;

    /// Calls `visit` with each option of a command and of those below it that takes a value.
    fn each_option(command: &Command, words: &[String], visit: &mut impl FnMut(&[String], &Arg)) {
        let options = command.get_arguments().filter(|arg| arg.get_action().takes_values());
        options.filter(|arg| arg.get_long().is_some()).for_each(|arg| visit(words, arg));
        for below in command.get_subcommands() {
            each_option(below, &[words, &[below.get_name().to_owned()]].concat(), visit);
        }
    }

    #[test]
    fn no_option_answers_with_the_text_of_a_parser() {
        let mut refused = 0;
        each_option(&Cli::command(), &["kolo".to_owned()], &mut |words, arg| {
            for value in ["many", "-1", "1.5", "", "99999999999999999999", "70000"] {
                let option = format!("--{}={value}", arg.get_long().unwrap());
                let Err(error) = Cli::try_of([words, std::slice::from_ref(&option)].concat()) else {
                    continue;
                };
                let text = error.to_string();
                for raw in [
                    "invalid digit",
                    "invalid float",
                    "target type",
                    "empty string",
                    "is not in",
                    "provided string",
                ] {
                    assert!(!text.contains(raw), "{words:?} {option}: {text}");
                }
                refused += usize::from(text.contains("give a whole number"));
            }
        });
        assert!(refused > 100, "{refused}");
        for (value, expected) in [
            ("two", "invalid value 'two' for '--nproc <NPROC>': give a whole number, at least 0\n"),
            ("99999999999999999999", "it is too large; give a smaller whole number\n"),
        ] {
            let error = Cli::try_of(["kolo", "train", "--nproc", value]).err().unwrap();
            assert!(error.exit_code() == 2 && error.to_string().contains(expected), "{error}");
        }
        let port = Cli::try_of(["kolo", "train", "--master-port", "70000"]).err().unwrap().to_string();
        assert!(
            port.contains("'70000' for '--master-port <MASTER_PORT>': give a whole number from 0 to 65535"),
            "{port}"
        );
    }
}
