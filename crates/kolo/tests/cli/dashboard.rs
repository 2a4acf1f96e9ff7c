//! `kolo train --dashboard`, on a real terminal.

use std::path::Path;
use std::process::{Child, Command};

use kolo_testing::{PseudoTerminal, alive};

use super::program::{fail, kolo, succeed, summary, workers};

/// Escape sequences that enter and leave the alternate screen.
const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";

/// A run of two workers.
const RUN: &[&str] = &["train", "--nproc", "2", "--model", "mlp", "--batch-size", "4"];

/// A run without an end.
const LONG: &[&str] = &["--epochs", "1000", "--max-restarts", "0", "--out", "run", "--dashboard"];

/// Kolo on a terminal, and the terminal's modes before.
struct OnTerminal {
    terminal: PseudoTerminal,
    before: String,
    job: Child,
}

impl OnTerminal {
    fn start(folder: &Path, more: &[&str]) -> OnTerminal {
        let terminal = PseudoTerminal::open();
        let before = format!("{:?}", terminal.modes());
        let job = terminal.spawn(&mut kolo(folder, &[RUN, more].concat()));
        OnTerminal { terminal, before, job }
    }

    /// Returns the terminal's text after the end of the job, which must have restored the terminal.
    fn end(mut self, last_words: &str, is_good: bool) -> String {
        self.terminal.wait_for(last_words);
        let status = self.job.wait().unwrap();
        let text = self.terminal.wait_for(last_words);
        assert_eq!(status.success(), is_good, "{text}");
        assert_eq!(format!("{:?}", self.terminal.modes()), self.before);
        let places = [ENTER, LEAVE, last_words].map(|part| text.rfind(part).unwrap());
        assert!(places.is_sorted(), "{places:?}: {text}");
        text
    }
}

#[test]
fn a_run_that_is_shown_ends_in_the_same_bits_and_prints_its_result() {
    let folder = tempfile::tempdir().unwrap();
    succeed(folder.path(), &[RUN, &["--steps", "30", "--out", "plain"]].concat());
    let shown = OnTerminal::start(folder.path(), &["--steps", "30", "--out", "shown", "--dashboard"]);
    let text = shown.end("run folder", true);
    for part in ["fashion-mnist-small", "images/s", "ranks:", "buckets:", "weights         sha256"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let hash = |run: &str| summary(&folder.path().join(run))["weights_sha256"].to_string();
    assert_eq!(hash("shown"), hash("plain"));
}

#[test]
fn ctrl_c_and_a_death_give_the_terminal_back() {
    let folder = tempfile::tempdir().unwrap();
    let run = OnTerminal::start(folder.path(), LONG);
    run.terminal.wait_for("backward");
    run.terminal.type_in("\u{3}");
    run.end("error: ", false);

    std::fs::remove_dir_all(folder.path().join("run")).unwrap();
    let run = OnTerminal::start(folder.path(), LONG);
    run.terminal.wait_for("backward");
    for pid in workers(&run.job).into_iter().filter(|pid| alive(*pid)) {
        Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    }
    run.end("error: ", false);
}

#[test]
fn without_a_terminal_it_is_refused_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let (code, error) = fail(folder.path(), &[RUN, &["--dashboard", "--out", "run"]].concat());
    assert!(code == 2 && error.contains("--dashboard: standard error is no terminal"), "{error}");
    assert!(!folder.path().join("run").exists(), "what is refused leaves nothing");
    let (code, error) = fail(folder.path(), &[RUN, &["--dashboard", "--log-format", "json"]].concat());
    assert!(code == 2 && error.contains("cannot be used with"), "{error}");
}
