//! `kolo report`.

use std::fs;
use std::path::Path;

use crate::program::{fail, succeed};

fn train(folder: &Path, out: &str, more: &[&str]) {
    let args = ["train", "--nproc", "2", "--steps", "30", "--batch-size", "4", "--no-augment", "--out", out];
    succeed(folder, &[&args[..], more].concat());
}

#[test]
fn what_train_writes_is_what_report_reads() {
    let folder = tempfile::tempdir().unwrap();
    train(folder.path(), "a", &[]);
    train(
        folder.path(),
        "b",
        &["--precision", "f16", "--noise-scale", "--transport", "tcp", "--clip-norm", "1"],
    );
    let told = succeed(folder.path(), &["report", "a"]);
    assert!(told.ends_with("\nreport: a/report.html\n"), "{told}");
    let page = fs::read_to_string(folder.path().join("a/report.html")).unwrap();
    for part in
        ["Findings", "complete", "images/s", "Test accuracy", "bucket 0, ", "One generation with 2 workers"]
    {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("What is missing or incomplete"), "a whole run lacks nothing");
    let told = succeed(folder.path(), &["report", "a", "b", "--out", "both.html"]);
    assert!(told.contains("a: ") && told.contains("b: ") && told.ends_with("both.html\n"), "{told}");
    let page = fs::read_to_string(folder.path().join("both.html")).unwrap();
    assert!(page.contains("Settings that differ:") && page.contains("precision.compute"));
    let plan = ["plan", "step", "--from", "a", "--between", "loopback", "--workers", "1,2", "--json"];
    for advise in [&[][..], &["--advise", "2"]] {
        let plan = succeed(folder.path(), &[&plan, advise].concat());
        fs::write(folder.path().join("plan.json"), plan).unwrap();
        let told = succeed(folder.path(), &["report", "a", "--plan", "plan.json"]);
        assert!(told.contains("a step of 2 workers takes ") && told.contains(", were predicted\n"), "{told}");
    }
    let page = fs::read_to_string(folder.path().join("a/report.html")).unwrap();
    assert!(page.contains("<h2>Predicted and measured</h2>"));
}

#[test]
fn what_is_no_run_is_told_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("run")).unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join("run").join(name), text).unwrap();
    let told = |args: &[&str]| fail(folder.path(), &[&["report"], args].concat());
    assert_eq!(told(&[]).0, 2);
    for (args, words) in [
        (&["nowhere"][..], "no run folder nowhere"),
        (&["run"], "run is no run folder: it has no config.toml; give a folder"),
    ] {
        let (code, error) = told(args);
        assert!(code == 2 && error.contains(words), "{error}");
    }
    write("config.toml", "model = \"small\"\n");
    write("steps.jsonl", "{\"step\":0}\n{\"step\":1}\n");
    let (code, error) = told(&["run"]);
    assert!(code == 2 && error.contains("run/steps.jsonl line 1: missing field `epoch`"), "{error}");
    write("steps.jsonl", "");
    write("mine.html", "<p>mine");
    let (code, error) = told(&["run", "--out", "run/mine.html"]);
    assert!(code == 2 && error.contains("run/mine.html exists and is no report"), "{error}");
    fs::write(folder.path().join("plan.json"), "[{\"workers\": 2}]").unwrap();
    for (file, words) in
        [("plan.json", "not what `kolo plan step --json` prints"), ("no.json", "No such file")]
    {
        let (code, error) = told(&["run", "--plan", file]);
        assert!(code == 2 && error.contains(&format!("--plan {file}: ")) && error.contains(words), "{error}");
    }
    assert!(!folder.path().join("run/report.html").exists(), "nothing was written");
}
