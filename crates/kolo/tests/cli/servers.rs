//! Summation servers: the same bits with and without them, also when they are killed.

use kolo_testing::{alive, send};

use super::elastic::{RUN, disturbed, expected};
use super::program::{fail, start, succeed, summary, workers};

#[test]
fn a_run_with_servers_ends_in_the_same_weights() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, more: &[&str]| {
        let fixed = ["train", "--shards", "4", "--steps", "5", "--batch-size", "8", "--out", name];
        let output = succeed(folder.path(), &[&fixed[..], more].concat());
        let summary = summary(&folder.path().join(name));
        assert_eq!(summary["world_size"], if name == "alone" { 1 } else { 2 });
        (summary["weights_sha256"].clone(), summary["test_accuracy"].clone(), output)
    };
    let (weights, accuracy, _) = run("alone", &["--nproc", "1"]);
    for (name, more) in [
        ("shm", &["--nproc", "2", "--servers", "1"][..]),
        ("tcp", &["--nproc", "2", "--servers", "2", "--transport", "tcp", "--algorithm", "direct"]),
        ("clip", &["--nproc", "2", "--servers", "3", "--bucket-cap-mb", "0.02", "--verify-every", "1"]),
    ] {
        let (found, at, words) = run(name, more);
        assert_eq!((&found, &at), (&weights, &accuracy), "{more:?}: {words}");
    }
}

#[test]
fn deaths_of_servers_do_not_change_the_weights() {
    // One of three workers is left whatever the victims are, and however late their replacements come.
    for (transport, signals) in
        [("tcp", &[("KILL", 4), ("KILL", 0), ("KILL", 2)][..]), ("shm", &[("KILL", 3), ("TERM", 4)])]
    {
        let more = ["--servers", "2", "--algorithm", "direct"];
        let (end, words) = disturbed(&RUN, "3", transport, &more, signals);
        assert_eq!(end, expected(), "{transport} {signals:?}: {words}");
        assert!(words.contains("and 2 summation servers"), "{words}");
    }
}

#[test]
fn servers_end_when_no_worker_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["train", "--steps", "100000", "--nproc", "1", "--servers", "2", "--out", "run"];
    let mut job = start(folder.path(), &args);
    assert!(job.has_said("1 worker over"));
    let all = workers(&job.process);
    assert_eq!(all.len(), 3);
    send("KILL", &all[..1]);
    let (status, told) = job.end();
    assert!(!status.success() && told.contains("rank 0") && told.contains("killed"), "{told}");
    assert!(all.iter().all(|pid| !alive(*pid)), "{told}");
}

/// The run itself verifies every element.
#[test]
fn sums_through_servers_are_measured_and_nothing_else_is() {
    let folder = tempfile::tempdir().unwrap();
    for transport in ["shm", "tcp"] {
        let words =
            "bench all-reduce --nproc 3 --servers 2 --algorithm all --sizes 12,3000000 --seconds 0.05";
        let args: Vec<&str> = words.split(' ').chain(["--json", "--transport", transport]).collect();
        let report: serde_json::Value = serde_json::from_str(&succeed(folder.path(), &args)).unwrap();
        assert_eq!((&report["world_size"], &report["servers"]), (&5.into(), &2.into()));
        let rows = report["rows"].as_array().unwrap();
        assert!(rows.iter().any(|row| row["algorithm"] == "direct"), "{report}");
    }
    for (more, named) in [("broadcast", "broadcast"), ("all-reduce --op max", "max")] {
        let args: Vec<&str> =
            ["bench"].into_iter().chain(more.split(' ')).chain(["--servers", "1"]).collect();
        let (_, words) = fail(folder.path(), &args);
        assert!(words.contains("--servers") && words.contains(named), "{words}");
    }
    let (code, words) = fail(folder.path(), &["launch", "--nproc", "0", "--servers", "2", "--", "true"]);
    assert!(code == 2 && words.contains("without any worker"), "{words}");
}
