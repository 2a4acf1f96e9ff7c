//! Jobs of several launchers, all on this machine: any of them is killed, even the first, and the weights end
//! in the same bits.

use std::net::TcpListener;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use super::elastic::{RUN, STEPS};
use super::program::{kolo, succeed, summary};

/// A launcher, and the file with its output.
struct Launcher {
    process: Child,
    words: std::path::PathBuf,
}

impl Launcher {
    /// Starts node `node` of a job of two, with two workers; either node may continue without the other.
    fn start(folder: &Path, node: usize, nodes: &[&str], master: &str, more: &[&str]) -> Launcher {
        let words = folder.join(format!("words{node}"));
        let file = std::fs::File::create(&words).unwrap();
        let arbiter = format!("folder:{}", folder.join("arbiter").display());
        let launch = [&["launch", "--nproc", "2", "--master", master, "--arbiter", &arbiter], nodes].concat();
        let program = env!("CARGO_BIN_EXE_kolo");
        let args = [&launch[..], &["--", program], &RUN, &["--out", "run"], more].concat();
        let process = kolo(folder, &args).stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        Launcher { process, words }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.words).unwrap()
    }

    /// Waits until `holds` is true of the output; returns false if the launcher ends first.
    fn wait(&mut self, what: &str, holds: impl Fn(&str) -> bool) -> bool {
        let until = Instant::now() + Duration::from_secs(120);
        while Instant::now() < until {
            if holds(&self.said()) {
                return true;
            }
            if self.process.try_wait().unwrap().is_some() {
                return holds(&self.said());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{what}: {}", self.said());
    }

    fn succeed(mut self) -> String {
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{}", self.said());
        self.said()
    }

    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn steps_done(folder: &Path) -> usize {
    std::fs::read_to_string(folder.join("run/steps.jsonl")).unwrap_or_default().lines().count()
}

fn masters(count: usize) -> String {
    let free: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let places: Vec<String> = free.iter().map(|free| free.local_addr().unwrap().to_string()).collect();
    places.join(",")
}

fn result(folder: &Path) -> String {
    assert_eq!(steps_done(folder), STEPS, "a line for each step");
    summary(&folder.join("run"))["weights_sha256"].as_str().unwrap().into()
}

fn undisturbed() -> String {
    let folder = tempfile::tempdir().unwrap();
    succeed(folder.path(), &[&RUN[..], &["--nproc", "1", "--out", "run"]].concat());
    result(folder.path())
}

/// Waits until the run has begun: some steps are written.
fn has_begun(launcher: &mut Launcher, folder: &Path) {
    let begun = launcher.wait("the run does not begin", |_| steps_done(folder) > 0);
    assert!(begun && steps_done(folder) < STEPS, "it is over already: {}", launcher.said());
}

#[test]
fn a_killed_launcher_does_not_change_the_weights() {
    let expected = undisturbed();
    for victim in [None, Some(0), Some(1)] {
        let folder = tempfile::tempdir().unwrap();
        let master = masters(1);
        let start = |node: usize| {
            let number = node.to_string();
            Launcher::start(folder.path(), node, &["--nnodes", "2", "--node-rank", &number], &master, &[])
        };
        let mut launchers = vec![start(0), start(1)];
        if let Some(victim) = victim {
            let first = &mut launchers[0];
            assert!(
                first.wait("no group of four", |said| said.contains("4 workers over")),
                "{}",
                first.said()
            );
            has_begun(first, folder.path());
            launchers.remove(victim).kill();
        }
        let words: Vec<String> = launchers.into_iter().map(Launcher::succeed).collect();
        assert_eq!(result(folder.path()), expected, "{victim:?}: {words:?}");
        assert_eq!(words[0].contains("of 2 workers"), victim.is_some(), "{victim:?}: {words:?}");
    }
}

#[test]
fn a_launcher_that_comes_late_joins_in() {
    let expected = undisturbed();
    let folder = tempfile::tempdir().unwrap();
    let master = masters(2);
    let range = ["--nnodes", "1:2"];
    // Slow, so that it does not end before the second one joins.
    let start = |node| Launcher::start(folder.path(), node, &range, &master, &["--slow", "0:compute:5"]);
    let mut first = start(0);
    has_begun(&mut first, folder.path());
    let second = start(1);
    assert!(first.wait("nobody joins", |said| said.contains("of 4 workers")), "too late: {}", first.said());
    let words = [first.succeed(), second.succeed()];
    assert_eq!(result(folder.path()), expected, "{words:?}");
}
