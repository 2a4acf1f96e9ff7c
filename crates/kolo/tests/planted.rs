//! Real faults of hosts that `kolo check` must find: a link much slower than the others, and a disk without
//! room.

use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};

use kolo_testing::harness::{run_one_by_one, test_where};
use kolo_testing::{Hosts, SmallDisk};

fn main() -> ExitCode {
    run_one_by_one(vec![
        test_where("a_throttled_host_is_named", a_throttled_host_is_named),
        test_where("a_small_disk_is_told", a_small_disk_is_told),
    ])
}

fn kolo(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kolo"));
    command.args(args).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn found(output: &Output, check: &str) -> serde_json::Value {
    let said = String::from_utf8_lossy(&output.stdout);
    let said: String = said.lines().map(|line| line.strip_prefix("[rank 0] ").unwrap_or(line)).collect();
    let report: serde_json::Value = serde_json::from_str(&said)
        .unwrap_or_else(|e| panic!("{e}: {said} {}", String::from_utf8_lossy(&output.stderr)));
    let findings = report["findings"].as_array().unwrap();
    let found = findings.iter().find(|finding| finding["check"] == check);
    found.unwrap_or_else(|| panic!("no {check}: {findings:?} {}", report["facts"]["links"])).clone()
}

/// Three hosts; the last one sends slowly.
fn a_throttled_host_is_named() -> Result<(), String> {
    let (hosts, folder) = (Hosts::new(3)?, tempfile::tempdir().unwrap());
    for other in 0..2 {
        hosts.throttle(2, other, "20mbit")?;
    }
    let folder = folder.path();
    std::fs::write(folder.join("token"), "of a test of slow links").unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(folder.join("token"), private).unwrap();
    let master = format!("{}:29500", hosts.address(0));
    let nodes: Vec<_> = (0..3)
        .map(|node| {
            let number = node.to_string();
            let launch =
                ["launch", "--nproc", "1", "--nnodes", "3", "--node-rank", &number, "--master", &master];
            let job = ["--token-file", "token", "--", env!("CARGO_BIN_EXE_kolo")];
            let check = ["check", "--json", "--shards", "3", "--batch-size", "8", "--out", "run"];
            let mut command = kolo(folder, &[&launch[..], &job, &check].concat());
            // By their host name all would be one node, and share memory.
            command.env("KOLO_NODE", format!("host{node}"));
            hosts.on(node, || command.spawn().unwrap())
        })
        .collect();
    let outputs: Vec<Output> = nodes.into_iter().map(|node| node.wait_with_output().unwrap()).collect();
    let slow = found(&outputs[0], "slow link");
    let (what, why) = (slow["what"].as_str().unwrap(), slow["why"].as_str().unwrap());
    assert!(what.starts_with("rank 2 sends to rank") && what.contains("Mbit/s, where"), "{what}");
    assert!(why.contains("All 2 slow ones are those over which rank 2 sends."), "{why}");
    let network = found(&outputs[0], "network");
    assert!(network["what"].as_str().unwrap().starts_with("the gradient takes at least"), "{network}");
    Ok(())
}

fn a_small_disk_is_told() -> Result<(), String> {
    let disk = SmallDisk::new(2)?;
    let output = kolo(disk.path(), &["check", "--json", "--nproc", "1", "--out", "run"]).output().unwrap();
    let space = found(&output, "disk space");
    let what = space["what"].as_str().unwrap();
    assert!(what.starts_with("the run writes 3.") && what.contains("is free at run"), "{what}");
    assert_eq!((space["severity"].as_str(), output.status.code()), (Some("error"), Some(4)));
    assert_eq!(std::fs::read_dir(disk.path()).unwrap().count(), 0, "it leaves nothing");
    Ok(())
}
