//! Tests of jobs that cannot be started: they are refused, and start nothing.

use std::net::TcpListener;

use crate::harness::{Trial, file};

#[test]
fn a_port_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let ended = Trial::new(2, "note started").set("port", port).ends_with(1);
    assert!(ended.error().contains(&format!("port {port}")), "{}", ended.err);
    assert!(ended.error().contains("--master-port"), "{}", ended.err);
    assert!(!ended.path("started").exists());
    ended.left_nothing(&[]);
}

#[test]
fn several_nodes_without_a_token() {
    let trial = Trial::new(1, "note started").set("nnodes", 2).set("node_rank", 1).set("port", 29500);
    let ended = trial.set("master_addr", "192.0.2.1").ends_with(2);
    assert!(ended.error().contains("--token-file") && ended.error().contains("openssl"), "{}", ended.err);
    assert!(!ended.path("started").exists());
    ended.left_nothing(&[]);
}

#[test]
fn a_free_given_port_is_taken() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let ended = Trial::new(2, "echo $MASTER_PORT").set("port", free).run();
    assert_eq!(ended.lines(), [format!("[rank 0] {free}"), format!("[rank 1] {free}")], "{}", ended.err);
}

#[test]
fn programs_that_cannot_run() {
    let folder = tempfile::tempdir().unwrap();
    let plain = file(folder.path(), "plain", "#!/bin/sh\n", false);
    let lost = file(folder.path(), "lost", "#!/no/such/interpreter\n", true);
    let missing = folder.path().join("missing").to_str().unwrap().to_owned();
    let there = folder.path().to_str().unwrap();
    for (program, code, hint) in [
        ("no-such-program-anywhere", 127, "PATH"),
        (missing.as_str(), 127, "no such file"),
        (lost.as_str(), 127, "interpreter"),
        (plain.as_str(), 126, "chmod"),
        (there, 126, "folder"),
    ] {
        let ended = Trial::of(2, &[program, "--option"]).run();
        assert_eq!(ended.code, code, "{}", ended.err);
        assert!(ended.error().contains(program) && ended.error().contains(hint), "{}", ended.err);
        ended.left_nothing(&[]);
    }
}

#[test]
fn no_workers() {
    let ended = Trial::new(0, "true").ends_with(2);
    assert!(ended.error().contains("--nproc"), "{}", ended.err);
}

/// The launcher needs 88 files for two workers, and may have only 60 unless it raises the limit.
#[test]
fn the_launcher_raises_its_limit_of_files_and_workers_get_theirs_back() {
    let script =
        r#"echo "worker $(ulimit -Sn) launcher $(grep 'Max open files' /proc/$PPID/limits | tr -s ' ')""#;
    let ended = Trial::new(2, script).after("ulimit -Sn 60; ulimit -Hn 500").run();
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert_eq!(ended.out.matches("worker 60 launcher Max open files 500 500").count(), 2, "{}", ended.out);
}

#[test]
fn too_few_files_are_reported_with_their_number() {
    let trial = || Trial::new(2, "echo started");
    let ended = trial().after("ulimit -n 66").ends_with(2);
    assert!(
        ended.error().contains("may have 66 files") && ended.error().contains("some 70"),
        "{}",
        ended.err
    );
    assert!(!ended.out.contains("started"), "{}", ended.out);
    let ended = trial().after("ulimit -n 80").ends_with(0);
    let words = ["kolo: this launcher may have 80 files", "some 88 for 2 workers", "elastic job"];
    assert!(words.iter().all(|words| ended.err.contains(words)), "{}", ended.err);
}
