//! `kolo completions` and `kolo man`: files for a shell and for `man`, made of the command line itself.

use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;
use kolo::Failure;
use kolo_program::output::print;

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

fn script(shell: Shell, mut command: Command) -> Result<String, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "kolo", &mut script);
    String::from_utf8(script).map_err(Failure::work)
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
        let fail = |error| Failure::work(format!("{}: {error}", self.folder.display()));
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
        // What bash offers after `kolo tr`, worked out by bash itself.
        let ask =
            "\nCOMP_WORDS=(kolo tr)\nCOMP_CWORD=1\n_kolo kolo tr kolo\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
        let offered = read_by("bash", &[], &(script(Shell::Bash, Cli::command()).unwrap() + ask)).unwrap();
        assert_eq!(String::from_utf8_lossy(&offered.stdout), "train\n", "{offered:?}");
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
        assert!(error.contains("kolo.1: "), "{error}");
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
