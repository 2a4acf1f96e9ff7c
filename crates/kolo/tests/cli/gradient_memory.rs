//! Memory of the buffers that workers of a host share: as many sets of gradients as `kolo plan memory` says.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use kolo_testing::wait_until;

use super::program::{start, summary, workers};

/// Bytes that a worker's buffers have besides gradients: pages of what ranks agree on, and rounding.
const OTHERS: u64 = 256 << 10;

/// Bytes of memory of the buffers that a process has made.
fn buffer_bytes(pid: u32) -> u64 {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    let is_of_buffers = |path: &Path| {
        std::fs::read_link(path).is_ok_and(|link| link.starts_with("/memfd:kolo-blocks (deleted)"))
    };
    let made = paths.filter(|path| is_of_buffers(path));
    made.map(|path| std::fs::metadata(path).map_or(0, |file| file.blocks() * 512)).sum()
}

/// Bytes of the buffers of each worker after some steps, in bytes of a parameter's gradient, and without and
/// with the others.
fn sets(nproc: usize, sharding: &str) -> Vec<(f64, f64)> {
    let folder = tempfile::tempdir().unwrap();
    let count = nproc.to_string();
    let model = ["train", "--model", "mlp", "--optimizer", "adamw", "--lr", "0.001", "--batch-size", "8"];
    let job = ["--steps", "300", "--slow", "0:compute:10", "--transport", "shm", "--shard", sharding];
    let size = ["--shards", &count, "--nproc", &count, "--out", "run"];
    let mut job = start(folder.path(), &[&model[..], &job, &size].concat());
    let steps = || std::fs::read_to_string(folder.path().join("run/steps.jsonl")).unwrap_or_default();
    wait_until("no steps", || steps().lines().count() > 20);
    let bytes: Vec<u64> = workers(&job.process).into_iter().map(buffer_bytes).collect();
    let (status, words) = job.end();
    assert!(status.success(), "{words}");
    assert_eq!(bytes.len(), nproc, "{words}");
    let set = 4.0 * summary(&folder.path().join("run"))["parameters"].as_f64().unwrap();
    bytes.into_iter().map(|bytes| (bytes.saturating_sub(OTHERS) as f64 / set, bytes as f64 / set)).collect()
}

#[test]
fn gradients_are_in_memory_as_often_as_the_plan_says() {
    // A pair without sharding has two sets, and a third if one rank is late.
    for (nproc, sharding, expected) in [(3, "host", 1.0), (2, "host", 1.0)] {
        for (without, with) in sets(nproc, sharding) {
            assert!(without <= expected && with >= expected, "{sharding}, {nproc}: {without} to {with}");
        }
    }
}
