//! `kolo train --trace`: the timeline agrees with the run's own files, and survives a death.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use kolo_testing::{alive, send, wait_until};

use super::program::{fail, noise_images, start, steps, succeed, workers};

/// Returns the events of a timeline, without those that set names.
fn events(file: &Path) -> Vec<Value> {
    let trace: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(trace["displayTimeUnit"], "ms");
    let events = trace["traceEvents"].as_array().unwrap().iter();
    events.filter(|event| event["ph"] != "M").cloned().collect()
}

#[test]
fn the_timeline_says_what_the_files_say() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 96);
    let args =
        ["train", "--nproc", "3", "--model", "mlp", "--data", &data, "--batch-size", "4", "--epochs", "3"];
    let traced = [&args[..], &["--trace", "t.json", "--out", "run"]].concat();
    let words = succeed(folder.path(), &traced);
    assert!(words.contains("timeline: t.json"), "{words}");
    let (events, steps) = (events(&folder.path().join("t.json")), steps(&folder.path().join("run")));
    let buckets = fs::read_to_string(folder.path().join("run/buckets.csv")).unwrap();
    let bytes = buckets.lines().skip(1).map(|row| row.split(',').nth(1).unwrap().parse::<u64>().unwrap());
    let bytes = bytes.sum::<u64>();

    // Bytes of each rank in each step.
    let mut sent: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for event in events.iter().filter(|event| event["name"].as_str().unwrap().starts_with("reduce bucket")) {
        let at = (event["pid"].as_u64().unwrap(), event["args"]["step"].as_u64().unwrap());
        *sent.entry(at).or_default() += event["args"]["bytes"].as_u64().unwrap();
    }
    assert_eq!(sent.len(), 3 * steps.len());
    assert!(sent.values().all(|sent| *sent == bytes), "{bytes}: {sent:?}");

    // Waits of rank 0, and the length of its steps.
    let seconds = |field: &str| steps.iter().map(|step| step[field].as_f64().unwrap()).sum::<f64>();
    let of_rank_0 = |key: &str, value: &str| {
        let of = events.iter().filter(|event| event["pid"] == 0 && event[key] == value);
        of.map(|event| event["dur"].as_f64().unwrap() / 1e6).sum::<f64>()
    };
    let (waits, exposed) = (of_rank_0("cat", "wait"), seconds("exposed_comm_seconds"));
    assert!((waits - exposed).abs() < 0.02 * seconds("seconds"), "{waits} s, {exposed} s");
    assert!((of_rank_0("name", "step") - seconds("seconds")).abs() < 1e-4 * steps.len() as f64);
    for name in ["data", "forward", "backward", "evaluate", "checkpoint"] {
        assert!(of_rank_0("name", name) > 0.0, "{name}");
    }

    // The others wait for the rank that starts a collective last.
    let reduced = events.iter().filter(|event| event["args"]["waits_for_rank"].is_u64());
    let all = events.iter().filter(|event| event["pid"] == 0 && event["tid"] == 1).count();
    assert_eq!(reduced.count(), 2 * all);

    let (code, words) = fail(folder.path(), &traced);
    assert!(code == 2 && words.contains("t.json exists; remove it or give another name"), "{words}");
}

#[test]
fn the_steps_that_are_asked_for_are_in_it_and_the_bits_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 64);
    let args =
        ["train", "--nproc", "2", "--model", "mlp", "--data", &data, "--batch-size", "4", "--epochs", "2"];
    succeed(folder.path(), &[&args[..], &["--out", "a"]].concat());
    let traced = ["--trace", "deep/t.json", "--trace-steps", "3-5", "--out", "b"];
    succeed(folder.path(), &[&args[..], &traced].concat());
    let sums =
        ["a", "b"].map(|run| super::program::summary(&folder.path().join(run))["weights_sha256"].clone());
    assert_eq!(sums[0], sums[1]);
    let events = events(&folder.path().join("deep/t.json"));
    let spans = events.iter().filter(|event| event["ph"] == "X");
    let steps: BTreeSet<u64> = spans.map(|event| event["args"]["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, BTreeSet::from([3, 4, 5]));
}

/// The job continues without the worker, whose part of the timeline lacks at most about its last second.
#[test]
fn a_death_leaves_the_timeline_of_all() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 64);
    let args = ["train", "--nproc", "3", "--model", "mlp", "--data", &data, "--batch-size", "4"];
    let long = ["--epochs", "1000", "--checkpoint-epochs", "1000", "--steps", "1500", "--max-restarts", "0"];
    let traced = ["--out", "run", "--trace", "t.json"];
    let mut job = start(folder.path(), &[&args[..], &long, &traced].concat());
    let parts = folder.path().join("t.json.parts");
    let written = |path: &fs::DirEntry| path.metadata().is_ok_and(|file| file.len() > 10_000);
    let recording = || fs::read_dir(&parts).map_or(0, |files| files.flatten().filter(written).count());
    wait_until("no three workers record", || recording() == 3);
    send("KILL", &[workers(&job.process).into_iter().filter(|pid| alive(*pid)).max().unwrap()]);
    assert!(job.end().0.success());
    let events = events(&folder.path().join("t.json"));
    let ranks = events.iter().filter(|event| event["cat"] == "membership");
    let ranks: BTreeSet<&str> = ranks.map(|event| event["name"].as_str().unwrap()).collect();
    let expected = ["rank 0 of 2, generation 2", "rank 0 of 3, generation 1", "rank 1 of 2, generation 2"];
    let expected = expected.into_iter().chain(["rank 1 of 3, generation 1", "rank 2 of 3, generation 1"]);
    assert_eq!(ranks, expected.collect());
    assert!(!parts.exists());
}
