//! `kolo completions` and `kolo man`: files for a shell and for `man`, made of the command line itself.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, Resettable};
use clap::{Arg, Args, Command, ValueHint};
use clap_complete::Shell;
use kolo::Failure;
use kolo_data::DATASETS;
use kolo_ddp::Sharding;
use kolo_ddp::optimizer::OPTIMIZERS;
use kolo_ddp::reduction::REDUCTIONS;
use kolo_ddp::straggler::Policy;
use kolo_ddp::sync::SYNCS;
use kolo_elastic::ARBITERS;
use kolo_models::MODELS;
use kolo_plan::memory::FOOTPRINTS;
use kolo_program::output::print;
use kolo_recipe::{DEVICES, PRECISIONS};
use kolo_weights::FORMATS;

/// Print a script with which your shell completes the commands and options of Kolo.
///
/// bash: kolo completions bash > ~/.local/share/bash-completion/completions/kolo
///
/// zsh: kolo completions zsh > a file _kolo in a folder of your $fpath
///
/// fish: kolo completions fish > ~/.config/fish/completions/kolo.fish
#[derive(Args)]
pub(crate) struct Completions {
    /// The shell that reads the script
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, command: Command) -> Result<(), Failure> {
        print(&script(self.shell, command)?)
    }
}

fn script(shell: Shell, command: Command) -> Result<String, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut with_values(command), "kolo", &mut script);
    String::from_utf8(script).map_err(Failure::work)
}

/// Lets a shell offer the names of the tables. The options themselves take more, such as settings after a
/// name. Files are offered only for options that take one.
fn with_values(command: Command) -> Command {
    let option = |arg: Arg| {
        let offered = arg.get_long().map(offered).unwrap_or_default();
        match arg.get_value_hint() {
            _ if !offered.is_empty() => {
                arg.default_value(Resettable::Reset).value_parser(PossibleValuesParser::new(offered))
            }
            ValueHint::Unknown if arg.get_action().takes_values() && !arg.is_positional() => {
                arg.value_hint(ValueHint::Other)
            }
            _ => arg,
        }
    };
    command.mut_args(option).mut_subcommands(with_values)
}

/// Returns what a shell offers as the value of an option; nothing if no table has its values.
fn offered(option: &str) -> Vec<String> {
    let names: Vec<&str> = match option {
        "model" => MODELS.iter().map(|model| model.name()).collect(),
        // A path follows.
        "data" => {
            let begin =
                |usage: String| usage.split_inclusive([':', '[']).next().unwrap_or_default().replace('[', "");
            return DATASETS.iter().map(|data| begin(data.usage())).collect();
        }
        "optimizer" => OPTIMIZERS.iter().map(|entry| entry.name).collect(),
        "reduction" => REDUCTIONS.iter().map(|entry| entry.name).collect(),
        "sync" => SYNCS.iter().map(|entry| entry.name).collect(),
        "shard" => Sharding::ALL.iter().map(|(name, _)| *name).collect(),
        "straggler" => Policy::ALL.iter().map(|(name, _)| *name).collect(),
        "device" => DEVICES.to_vec(),
        "precision" => PRECISIONS.to_vec(),
        "format" => FORMATS.iter().map(|format| format.name).collect(),
        "footprint" => FOOTPRINTS.iter().map(|footprint| footprint.name).collect(),
        "arbiter" => ARBITERS.iter().map(|arbiter| arbiter.name).collect(),
        _ => Vec::new(),
    };
    names.into_iter().map(Into::into).collect()
}

/// Write a manual page for each command into a folder.
///
/// `man -M` or MANPATH finds pages in a folder named man1: kolo man ~/.local/share/man/man1
#[derive(Args)]
pub(crate) struct Man {
    /// The folder. Kolo creates it if it does not exist, and replaces pages in it
    folder: PathBuf,
}

impl Man {
    pub(crate) fn run(self, command: Command) -> Result<(), Failure> {
        let folder = self.folder.display();
        if self.folder.exists() && !self.folder.is_dir() {
            return Err(Failure::input(format!("{folder} is a file; give a folder for the pages")));
        }
        let fail = |error| Failure::work(format!("{folder}: {error}"));
        std::fs::create_dir_all(&self.folder).map_err(fail)?;
        clap_mangen::generate_to(command, &self.folder).map_err(fail)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::Path;
    use std::process::Stdio;

    use clap::{CommandFactory, ValueEnum};

    use crate::commands::Cli;

    use super::*;

    /// Runs a program that reads `text`; `None` if it is not installed.
    fn read_by(program: &str, arguments: &[&str], text: &str) -> Option<std::process::Output> {
        let mut command = std::process::Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().ok()?;
        child.stdin.take()?.write_all(text.as_bytes()).unwrap();
        Some(child.wait_with_output().unwrap())
    }

    #[test]
    fn shells_read_their_scripts_and_find_the_commands_in_them() {
        for shell in Shell::value_variants() {
            let script = script(*shell, Cli::command()).unwrap();
            for word in ["train", "completions", "all-reduce", "find-lr"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
            let name = shell.to_string();
            let Some(read) = read_by(&name, &["-n"], &script).filter(|_| *shell != Shell::PowerShell) else {
                continue;
            };
            assert!(read.status.success() && read.stderr.is_empty(), "{shell}: {read:?}");
        }
    }

    /// Bash itself works out the words that it offers.
    #[test]
    fn a_shell_offers_commands_and_the_names_of_tables() {
        let script = script(Shell::Bash, Cli::command()).unwrap();
        for (words, offered) in [
            (&["tr"][..], "train\n"),
            (&["train", "--shard", ""], "nothing\noptimizer\ngradients\nparameters\nhost\n"),
            (&["train", "--optimizer", "ad"], "adam\nadamw\n"),
            (&["train", "--sync", "di"], "diloco\n"),
            (&["train", "--data", "cs"], "csv:\n"),
            (&["export", "--format", "b"], "burn\n"),
            // No files, of which the folder of this test has some.
            (&["train", "--seed", ""], "\n"),
        ] {
            let (last, before) = words.split_last().unwrap();
            let line =
                format!("COMP_WORDS=(kolo {} '{last}')\nCOMP_CWORD={}\n", before.join(" "), words.len());
            let previous = before.last().unwrap_or(&"kolo");
            let ask =
                format!("\n{line}_kolo kolo '{last}' {previous}\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n");
            let answer = read_by("bash", &[], &(script.clone() + &ask)).unwrap();
            assert_eq!(String::from_utf8_lossy(&answer.stdout), offered, "{words:?}: {answer:?}");
        }
    }

    #[test]
    fn each_command_has_a_page_without_warnings() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("new/man1");
        Man { folder: place.clone() }.run(Cli::command()).unwrap();
        for page in ["kolo.1", "kolo-train.1", "kolo-bench-all-reduce.1", "kolo-completions.1"] {
            let text = std::fs::read_to_string(place.join(page)).unwrap();
            assert!(text.contains(".SH SYNOPSIS"), "{page}");
            check(&place.join(page));
        }
        let error = Man { folder: place.join("kolo.1") }.run(Cli::command()).unwrap_err().to_string();
        assert!(error.ends_with("kolo.1 is a file; give a folder for the pages"), "{error}");
    }

    /// Lets groff read a page, where it is installed.
    fn check(page: &Path) {
        let Ok(read) = std::process::Command::new("groff")
            .args(["-man", "-Tutf8", "-wmac", "-Wbreak"])
            .arg(page)
            .output()
        else {
            return;
        };
        assert!(read.status.success() && read.stderr.is_empty(), "{read:?}");
        assert!(String::from_utf8_lossy(&read.stdout).contains("Print help"), "{read:?}");
    }
}
