//! Live views of a run: TensorBoard's files, and metrics for Prometheus.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use kolo_testing::{alive, free_port, send};

use super::program::{fail, kolo, noise_images, start, succeed, summary, workers};

/// Returns the page served at the port, once it contains `what`.
fn served(job: &mut Child, port: u16, what: &str) -> String {
    let until = Instant::now() + Duration::from_secs(60);
    let mut page = String::new();
    while Instant::now() < until && job.try_wait().unwrap().is_none() {
        page.clear();
        if let Ok(mut client) = TcpStream::connect(("127.0.0.1", port)) {
            let _ = client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
            let _ = client.read_to_string(&mut page);
        }
        if page.contains(what) {
            return page;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("`{what}` is not served: {page}");
}

fn event_files(run: &Path) -> Vec<fs::DirEntry> {
    fs::read_dir(run.join("tensorboard")).unwrap().map(Result::unwrap).collect()
}

#[test]
fn whoever_becomes_rank_0_serves_and_writes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (data, port) = (noise_images(folder.path(), 64), free_port().port());
    let address = port.to_string();
    let args = ["train", "--nproc", "2", "--model", "mlp", "--data", &data, "--batch-size", "4"];
    let long = ["--epochs", "1000", "--checkpoint-epochs", "1000", "--max-restarts", "0", "--steps", "1500"];
    let watched = ["--tensorboard", "--metrics-addr", &address, "--out", "run"];
    let mut job = start(folder.path(), &[&args[..], &long, &watched].concat());
    let page = served(&mut job.process, port, "kolo_train_test_accuracy{");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{page}");
    let labels = format!("{{data=\"{data}\",model=\"mlp\"}}");
    for (kind, name) in [
        ("gauge", "loss"),
        ("counter", "step_total"),
        ("gauge", "images_per_second"),
        ("gauge", "learning_rate"),
        ("gauge", "exposed_comm_fraction"),
        ("gauge", "epoch"),
        ("histogram", "step_seconds"),
    ] {
        assert!(page.contains(&format!("# TYPE kolo_train_{name} {kind}\n")), "{name}: {page}");
    }
    assert!(page.contains(&format!("kolo_train_world_size{labels} 2\n")), "{page}");
    assert!(page.contains(&format!("kolo_train_generation{labels} 1\n")), "{page}");
    let port_taken = fail(folder.path(), &[&args[..], &["--metrics-addr", &address, "--out", "b"]].concat());
    assert_eq!(port_taken.0, 2, "{}", port_taken.1);
    assert!(port_taken.1.contains(&format!("--metrics-addr 127.0.0.1:{port}: Address already in use")));
    assert!(!folder.path().join("b").exists(), "what is refused leaves nothing");

    let first = workers(&job.process).into_iter().filter(|pid| alive(*pid)).min().unwrap();
    send("KILL", &[first]);
    served(&mut job.process, port, &format!("kolo_train_world_size{labels} 1\n"));
    assert!(job.end().0.success());
    TcpStream::connect(("127.0.0.1", port)).unwrap_err();
    let steps = fs::read_to_string(folder.path().join("run/steps.jsonl")).unwrap();
    assert_eq!(steps.lines().count(), 1500);
    assert!(event_files(&folder.path().join("run")).len() >= 2, "one for each writer");
}

#[test]
fn a_run_that_is_watched_ends_in_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let run = |out: &str, more: &[&str]| {
        let args =
            ["train", "--nproc", "1", "--model", "mlp", "--batch-size", "8", "--steps", "5", "--out", out];
        succeed(folder.path(), &[&args[..], more].concat());
        summary(&folder.path().join(out))["weights_sha256"].to_string()
    };
    let plain = run("plain", &[]);
    assert_eq!(run("watched", &["--tensorboard", "--metrics-addr", &free_port().port().to_string()]), plain);
    assert!(!folder.path().join("plain/tensorboard").exists());
    let files = event_files(&folder.path().join("watched"));
    let name = files[0].file_name().into_string().unwrap();
    assert!(files.len() == 1 && name.starts_with("events.out.tfevents."), "{name}");
    // Options of live views are no settings of the run.
    let config = |run: &str| fs::read_to_string(folder.path().join(run).join("config.toml")).unwrap();
    assert_eq!(config("watched"), config("plain"));
}

#[test]
fn logs_are_objects_a_line_for_programs() {
    let folder = tempfile::tempdir().unwrap();
    let args =
        ["train", "--nproc", "2", "--model", "mlp", "--batch-size", "8", "--steps", "30", "--out", "run"];
    let mut job = kolo(folder.path(), &[&args[..], &["--log-format", "json"]].concat());
    // Two workers log messages: the groups that have formed.
    let output = job.env("RUST_LOG", "kolo_comm=debug").output().unwrap();
    assert!(output.status.success());
    let objects = |bytes: &[u8]| -> Vec<serde_json::Value> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let object = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        text.lines().map(object).collect()
    };
    let told = objects(&output.stderr);
    let of = |event: &str| told.iter().filter(|told| told["event"] == event).collect::<Vec<_>>();
    assert_eq!((&of("progress")[0]["step"], &of("progress")[0]["steps"]), (&1.into(), &30.into()));
    assert!(of("epoch").last().unwrap()["images_per_second"].as_f64() > Some(0.0), "{told:?}");
    let whose: std::collections::BTreeSet<_> =
        of("log").iter().map(|log| log["worker"].to_string()).collect();
    assert_eq!(whose.len(), 2, "{told:?}");
    let result = objects(&output.stdout);
    let summary = summary(&folder.path().join("run"));
    assert_eq!((result.len(), &result[0]["weights_sha256"]), (1, &summary["weights_sha256"]));
}

#[test]
fn an_address_that_cannot_be_is_told_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    for (address, words) in [
        ("many", "a port from 1 to 65535"),
        ("0.0.0.0:9400", "other machines can reach 0.0.0.0, and without a token"),
        ("192.0.2.1:9400", "other machines can reach 192.0.2.1"),
        ("nowhere.invalid:9400", "--metrics-addr nowhere.invalid:9400"),
    ] {
        let (code, error) = fail(folder.path(), &["train", "--metrics-addr", address]);
        assert!(code == 2 && error.contains(words), "{address}: {error}");
    }
}
