//! Commands in which `kolo train` is a program that another command starts.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::Parser;
use kolo::Failure;

use super::super::invalid_value::in_words;
use super::options::Train;

/// The options of `kolo train`, as a command line of their own.
#[derive(Parser)]
#[command(name = "kolo train", no_binary_name = true)]
struct Options {
    #[command(flatten)]
    train: Train,
}

/// Returns the options of a command that is `kolo train`; `None` if it is another program.
pub(in crate::commands) fn options_of(command: &[OsString]) -> Option<&[OsString]> {
    let [program, subcommand, options @ ..] = command else { return None };
    let is_kolo = Path::new(program).file_name() == Some(OsStr::new("kolo"));
    (is_kolo && subcommand == "train").then_some(options)
}

/// Refuses a command that begins with `train`, unless there is a program of that name: the user has forgotten
/// `kolo`.
pub(in crate::commands) fn refuse_bare(command: &[OsString]) -> Result<(), Failure> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_there = || std::env::split_paths(&folders).any(|folder| folder.join("train").is_file());
    match command.first() {
        Some(word) if word == "train" && !is_there() => Err(Failure::input(
            "`train` after `--`: there is no such program; write `kolo train` with its options",
        )),
        _ => Ok(()),
    }
}

/// Reads options of `kolo train` that follow `--`.
pub(in crate::commands) fn parse(options: &[OsString]) -> Result<Train, Failure> {
    let parsed = Options::try_parse_from(options).map_err(|error| {
        let text = in_words(error).to_string();
        let sentence = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        Failure::input(format!("after `--`: {sentence}"))
    })?;
    Ok(parsed.train)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kolo_train_is_known_by_its_name() {
        let options = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            options_of(&words).map(<[OsString]>::to_vec)
        };
        assert_eq!(options(&["kolo", "train", "--steps", "3"]), Some(vec!["--steps".into(), "3".into()]));
        assert_eq!(options(&["target/debug/kolo", "train"]), Some(Vec::new()));
        let bare = refuse_bare(&["train".into(), "--steps".into()]).unwrap_err();
        assert!(bare.to_string().ends_with("write `kolo train` with its options"), "{bare}");
        for command in [&["kolo", "train"][..], &["./train"], &[]] {
            let words: Vec<OsString> = command.iter().map(OsString::from).collect();
            refuse_bare(&words).unwrap();
        }
        for other in [&["kolo"][..], &["kolo", "bench"], &["my-kolo", "train"], &["train"], &[]] {
            assert_eq!(options(other), None, "{other:?}");
        }
    }
}
