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
            // Options that refuse 0 say so themselves.
            _ => "give a whole number, without sign or fraction".into(),
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
    use clap::{Arg, CommandFactory};
    use kolo::Failure;

    use super::super::{Cli, Command};
    use super::ErrorKind;

    /// Calls `visit` with each option of a command and of those below it that takes a value.
    fn each_option(command: &clap::Command, words: &[String], visit: &mut impl FnMut(&[String], &Arg)) {
        let options = command.get_arguments().filter(|arg| arg.get_action().takes_values());
        options.filter(|arg| arg.get_long().is_some()).for_each(|arg| visit(words, arg));
        for below in command.get_subcommands() {
            each_option(below, &[words, &[below.get_name().to_owned()]].concat(), visit);
        }
    }

    /// Returns the refusal of an option, by the parser or, of a training, by its checks before the start.
    fn refusal(line: &mut clap::Command, words: &[String], option: &str) -> Option<String> {
        let failure = |failure: &Failure| kolo_program::Ending::of(failure).message;
        match Cli::by(line, [words, &[option.to_owned()]].concat()) {
            Ok(Cli { command: Command::Train(train), .. }) => {
                let checked = train.configuration().and_then(|config| train.refuse(&config));
                checked.as_ref().err().map(failure)
            }
            Ok(_) => None,
            // The value was accepted.
            Err(error) if error.kind() == ErrorKind::MissingRequiredArgument => None,
            Err(error) => Some(error.to_string()),
        }
    }

    #[test]
    fn a_number_out_of_range_is_refused_in_a_sentence_that_names_the_option() {
        let (mut refused, mut line) = (0, Cli::definition());
        each_option(&Cli::command(), &["kolo".to_owned()], &mut |words, arg| {
            let name = format!("--{}", arg.get_long().unwrap());
            let mut refusal = |value: &str| refusal(&mut line, words, &format!("{name}={value}"));
            if !refusal("many").is_some_and(|text| text.contains("number")) {
                return;
            }
            for value in ["-1", "nan", "inf", "1e400", "", "0"] {
                let Some(text) = refusal(value) else {
                    let is_number = ["-1", "0"].contains(&value) || words[1..] != ["train"];
                    assert!(is_number, "{words:?} {name}={value} is not refused");
                    continue;
                };
                let sentence = text.split("\n\nFor more information").next().unwrap().trim_end();
                assert!(sentence.contains(&name), "{words:?} {name}={value}: {text}");
                assert!(!sentence.contains('\n'), "{words:?} {name}={value}: {text}");
                let permits_0 = sentence.contains("at least 0") || sentence.contains("from 0 ");
                assert!(!permits_0 || refusal("0").is_none(), "{words:?} {name}: {text}");
                refused += 1;
            }
        });
        assert!(refused > 300, "{refused}");
    }

    #[test]
    fn no_option_answers_with_the_text_of_a_parser() {
        let (mut refused, mut line) = (0, Cli::definition());
        each_option(&Cli::command(), &["kolo".to_owned()], &mut |words, arg| {
            for value in ["many", "-1", "1.5", "", "99999999999999999999", "70000"] {
                let option = format!("--{}={value}", arg.get_long().unwrap());
                let Err(error) = Cli::by(&mut line, [words, std::slice::from_ref(&option)].concat()) else {
                    continue;
                };
                let text = error.to_string();
                for raw in [
                    "invalid digit", "invalid float", "target type", "empty string", "is not in",
                    "provided string",
                ] {
                    assert!(!text.contains(raw), "{words:?} {option}: {text}");
                }
                refused += usize::from(text.contains("give a whole number"));
            }
        });
        assert!(refused > 100, "{refused}");
        for (value, expected) in [
            (
                "two",
                "invalid value 'two' for '--nproc <NPROC>': give a whole number, without sign or fraction\n",
            ),
            ("99999999999999999999", "it is too large; give a smaller whole number\n"),
        ] {
            let error = Cli::try_of(["kolo", "train", "--nproc", value]).err().unwrap();
            assert!(error.exit_code() == 2 && error.to_string().contains(expected), "{error}");
        }
        let port = Cli::try_of(["kolo", "train", "--master-port", "70000"]).err().unwrap().to_string();
        assert!(
            port.contains("'70000' for '--master-port <MASTER_PORT>': give a whole number from 1 to 65535"),
            "{port}"
        );
    }
}
