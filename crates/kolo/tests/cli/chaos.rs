//! `kolo chaos` on a small job: faults strike workers, and nothing is lost.

use std::process::Stdio;

use kolo_testing::{alive, selected, wait_until};

use super::own_program::example;
use super::program::{chaos, children, fail, kolo};

#[test]
fn nothing_is_lost() {
    // Kills of rank 0, of another rank and of a replacement that is stopped at once, and cut connections. The
    // first two pairs of seeds divide state, which islands cannot.
    let jobs = [
        ("6", &["--transport", "shm"][..]),
        ("12", &["--transport", "tcp"]),
        ("8", &["--transport", "shm"]),
        ("11", &["--transport", "shm", "--shards", "4", "--sync", "diloco:H=5", "--optimizer", "adamw"]),
    ];
    for (first, more) in selected(1, jobs) {
        let folder = tempfile::tempdir().unwrap();
        let args = ["--seeds", "2", "--seed", first, "--"];
        let job = ["--model", "mlp", "--steps", "300", "--batch-size", "4"];
        let (told, report) = chaos(folder.path(), &[&args[..], &job, more].concat());
        assert!(told.contains("2 runs: 0 lost something, 0 failed, 0 hung"), "{told}");
        let runs = report["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 2);
        // Pairs of seeds take turns with the jobs.
        let divided =
            ["optimizer", "gradients", "parameters", "host"].map(|state| format!("--shard {state}"));
        let names: Vec<String> = ["".into(), "own images".into()].into_iter().chain(divided).collect();
        // Workers that share no memory have no copy in it.
        let jobs = match (more.contains(&"--sync"), more.contains(&"tcp")) {
            (true, _) => 2,
            (false, true) => 5,
            (false, false) => 6,
        };
        let name = runs[0].get("job").map_or("", |name| name.as_str().unwrap());
        assert_eq!(name, names[first.parse::<usize>().unwrap() / 2 % jobs], "{told}");
        let done = |hit: &&serde_json::Value| hit["missed"].is_null();
        let hits = runs.iter().flat_map(|run| run["hits"].as_array().unwrap()).filter(done);
        assert!(hits.count() > 0, "{told}");
    }
}

#[test]
#[ignore = "slow: bash .ci/slow runs it"]
fn a_job_of_two_nodes_survives_its_launchers() {
    let folder = tempfile::tempdir().unwrap();
    // A killed launcher, and one worker after another.
    let args = ["--nodes", "2", "--nproc", "2", "--seeds", "2", "--seed", "2"];
    let job = ["--", "--model", "mlp", "--steps", "300", "--batch-size", "4"];
    let (told, report) = chaos(folder.path(), &[&args[..], &job].concat());
    assert!(told.contains("undisturbed: 4 workers"), "{told}");
    assert!(told.contains("2 runs: 0 lost something, 0 failed, 0 hung"), "{told}");
    assert!(report.to_string().contains("launcher"), "{report}");
}

#[test]
fn nothing_is_left_of_one_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["chaos", "--nodes", "2", "--nproc", "1", "--seeds", "1", "--", "--epochs", "1000"];
    // All that remains lies in a temporary folder.
    let mut command = kolo(folder.path(), &args);
    let mut chaos = command.env("TMPDIR", folder.path()).stdout(Stdio::null()).spawn().unwrap();
    let mut processes = Vec::new();
    wait_until("no two launchers with a worker each", || {
        let launchers = children(chaos.id());
        let workers: Vec<u32> = launchers.iter().flat_map(|launcher| children(*launcher)).collect();
        let are_there = (launchers.len(), workers.len()) == (2, 2);
        processes = [launchers, workers].concat();
        are_there
    });
    chaos.kill().unwrap();
    chaos.wait().unwrap();
    wait_until("a launcher or a worker is left", || processes.iter().all(|pid| !alive(*pid)));
}

#[test]
fn what_it_says_itself_cannot_be_said() {
    let folder = tempfile::tempdir().unwrap();
    for option in ["--nproc", "--servers", "--out", "--resume", "--max-restarts"] {
        let (code, words) = fail(folder.path(), &["chaos", "--", option, "3"]);
        assert!(code == 2 && words.contains(option), "{words}");
    }
    for (words, said) in [(&["--cut-links"][..], "--nodes 2"), (&["--disk-mb", "0"], "at least 1")] {
        let (code, error) = fail(folder.path(), &[&["chaos"], words].concat());
        assert!(code == 2 && error.contains(words[0]) && error.contains(said), "{error}");
    }
    let (code, words) = fail(folder.path(), &["chaos", "--", "--model", "none"]);
    assert!(code == 2 && words.contains("unknown model `none`"), "{words}");
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "nothing is left");
}

#[test]
#[ignore = "slow: bash .ci/slow runs it"]
fn an_own_program_is_compared_by_its_trace() {
    let folder = tempfile::tempdir().unwrap();
    let program = example("elastic_loop");
    // Kills of rank 0 and of other ranks, and cut connections.
    let seeds = ["--seeds", "3", "--seed", "7", "--nproc", "3", "--"];
    let (told, report) = chaos(folder.path(), &[&seeds[..], &[program.to_str().unwrap(), "8"]].concat());
    assert!(told.contains("632 steps") && told.contains("3 runs: 0 lost something, 0 failed"), "{told}");
    let runs = report["runs"].as_array().unwrap();
    let hits = runs.iter().flat_map(|run| run["hits"].as_array().unwrap());
    let kinds: Vec<&serde_json::Value> =
        hits.filter(|hit| hit["missed"].is_null()).map(|hit| &hit["fault"]).collect();
    assert!(kinds.iter().any(|kind| *kind == "kill"), "{told}");
    assert!(runs.iter().any(|run| run["generations"].as_u64().unwrap() > 1), "{told}");
}

#[test]
fn an_own_program_that_does_not_train_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let (code, words) = fail(folder.path(), &["chaos", "--", "true"]);
    assert!(code == 1 && words.contains("no step") && words.contains("`Ddp`"), "{words}");
}
