//! Output without a reader ends no run, and changes neither its result nor its exit code.

use std::fs::File;
use std::io::{PipeReader, Write, pipe};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use kolo_testing::{selected, send, wait_until};

use super::elastic::{RUN, expected, result};
use super::program::{kolo, workers};

/// Opens a file for both output streams, and a reader to keep open meanwhile.
fn unread(kind: &str) -> (File, Option<PipeReader>) {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    match kind {
        "full disk" => (full(), None),
        "reader gone" => (File::from(std::os::fd::OwnedFd::from(pipe().unwrap().1)), None),
        "reader stalls" => {
            let (reader, writer) = pipe().unwrap();
            let mut writer = File::from(std::os::fd::OwnedFd::from(writer));
            rustix::io::ioctl_fionbio(writer.as_fd(), true).unwrap();
            while writer.write(&[b' '; 4096]).is_ok() {}
            rustix::io::ioctl_fionbio(writer.as_fd(), false).unwrap();
            (writer, Some(reader))
        }
        _ => unreachable!("{kind}"),
    }
}

#[test]
fn a_run_comes_to_its_summary_whoever_reads_its_output() {
    let cases =
        [("reader gone", "json"), ("reader stalls", "text"), ("full disk", "text"), ("reader gone", "text")];
    for (kind, format) in selected(2, cases) {
        let folder = tempfile::tempdir().unwrap();
        let (file, _reader) = unread(kind);
        let args = [&RUN[..], &["--nproc", "2", "--out", "run", "--log-format", format]].concat();
        let mut command = kolo(folder.path(), &args);
        command.stdout(Stdio::from(file.try_clone().unwrap())).stderr(Stdio::from(file));
        assert_eq!(command.status().unwrap().code(), Some(0), "{kind}, {format}");
        assert_eq!(result(folder.path()), expected(), "{kind}, {format}");
    }
}

#[test]
fn a_configuration_that_cannot_be_printed_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let (full, _) = unread("full disk");
    let mut command = kolo(folder.path(), &["train", "--print-config"]);
    let output = command.stdout(Stdio::from(full)).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains("cannot write to the output"), "{words}");
}

/// The launcher has messages when a worker dies.
#[test]
fn a_job_whose_messages_nobody_reads_outlives_a_death() {
    let folder = tempfile::tempdir().unwrap();
    let (file, _reader) = unread("reader stalls");
    let mut command = kolo(folder.path(), &[&RUN[..], &["--nproc", "2", "--out", "run"]].concat());
    command.stdout(Stdio::from(file.try_clone().unwrap())).stderr(Stdio::from(file));
    let mut job = command.spawn().unwrap();
    let steps = folder.path().join("run/steps.jsonl");
    wait_until("no step is done", || std::fs::read(&steps).is_ok_and(|text| !text.is_empty()));
    send("KILL", &workers(&job)[1..]);
    assert_eq!(job.wait().unwrap().code(), Some(0));
    assert_eq!(result(folder.path()), expected());
}

/// Also for other programs under `kolo launch`: the launcher reads their output, and drops it.
#[test]
fn workers_of_other_programs_do_not_see_that_nobody_reads() {
    for kind in ["full disk", "reader gone"] {
        let folder = tempfile::tempdir().unwrap();
        let (file, _reader) = unread(kind);
        let script =
            "for i in $(seq 3000); do echo a line of some words $i || exit 9; done; echo > done.$RANK";
        let args = ["launch", "--nproc", "2", "--", "sh", "-c", script];
        let mut command = kolo(folder.path(), &args);
        command.stdout(Stdio::from(file.try_clone().unwrap())).stderr(Stdio::from(file));
        assert_eq!(command.status().unwrap().code(), Some(0), "{kind}");
        assert!(folder.path().join("done.0").exists() && folder.path().join("done.1").exists());
    }
}

/// A command whose result is its output fails if it cannot print.
#[test]
fn a_result_that_cannot_be_printed_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["bench", "all-reduce", "--nproc", "1", "--sizes", "4096", "--seconds", "0.05"];
    for (kind, code) in [("full disk", 1), ("reader gone", 0)] {
        let output = kolo(folder.path(), &args).stdout(Stdio::from(unread(kind).0)).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{kind}: {words}");
        assert_eq!(words.contains("cannot write to the output"), code == 1, "{words}");
    }
}

/// `println!` panics without a reader, which would end a worker.
#[test]
fn no_crate_prints_by_a_macro_that_panics() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut folders: Vec<PathBuf> =
        std::fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path().join("src")).collect();
    // Only tests run this crate.
    folders.retain(|folder| !folder.starts_with(crates.join("kolo-testing")));
    let (mut files, mut found) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if entry.is_dir() && !entry.ends_with("kolo-elastic/src/model") {
                folders.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                files += 1;
                let text = std::fs::read_to_string(&entry).unwrap();
                let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
                let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
                let prints = |line: &&str| ["print!(", "println!("].iter().any(|name| line.contains(name));
                found.extend(lines.filter(prints).map(|line| format!("{}: {line}", entry.display())));
            }
        }
    }
    assert!(files > 300, "{files} files");
    assert!(found.is_empty(), "write to the stream instead, and go on where that fails: {found:#?}");
}
