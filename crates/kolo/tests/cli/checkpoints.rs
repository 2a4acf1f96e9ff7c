//! Checkpoints of a real run: continued in the middle of an epoch by fewer workers, damaged, in the way of a
//! full disk.

use std::fs;
use std::path::{Path, PathBuf};

use super::program::{fail, kolo, stderr, succeed, summary};

/// Steps of the run, and steps from one checkpoint to the next.
const TOTAL: u64 = 9;
const EVERY: u64 = 2;

/// Trains with five workers to the end. Returns the steps of its checkpoints, the first of them in the middle
/// of its only epoch.
fn five_workers(folder: &Path) -> Vec<u64> {
    let (total, every) = (TOTAL.to_string(), EVERY.to_string());
    let args = ["train", "--nproc", "5", "--batch-size", "8", "--optimizer", "adamw", "--lr", "1e-3"];
    let more =
        ["--steps", &total, "--checkpoint-steps", &every, "--keep-checkpoints", "10", "--out", "whole"];
    succeed(folder, &[&args[..], &more].concat());
    let names = fs::read_dir(folder.join("whole/checkpoints")).unwrap();
    let number = |name: &str| name.strip_prefix("step-").unwrap().parse::<u64>().unwrap();
    let mut steps: Vec<u64> = names.map(|name| number(name.unwrap().file_name().to_str().unwrap())).collect();
    steps.sort_unstable();
    assert!(
        steps[0] < TOTAL && steps[0].is_multiple_of(EVERY) && *steps.last().unwrap() == TOTAL,
        "{steps:?}"
    );
    steps
}

fn checkpoint(run: &Path, step: u64) -> PathBuf {
    run.join(format!("checkpoints/step-{step:08}"))
}

/// Copies `whole` as an interrupted run: with the checkpoints of these steps only, and no file that is
/// written at the end.
fn interrupted(folder: &Path, name: &str, steps: &[u64]) -> PathBuf {
    let (whole, run) = (folder.join("whole"), folder.join(name));
    let copy = |from: &Path, to: &Path| {
        fs::create_dir_all(to).unwrap();
        for file in fs::read_dir(from).unwrap().map(Result::unwrap).filter(|file| file.path().is_file()) {
            fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    };
    copy(&whole, &run);
    fs::remove_file(run.join("summary.json")).unwrap();
    steps.iter().for_each(|step| copy(&checkpoint(&whole, *step), &checkpoint(&run, *step)));
    run
}

fn same_end(folder: &Path, name: &str) {
    let (whole, other) = (folder.join("whole"), folder.join(name));
    for field in ["weights_sha256", "test_accuracy", "train_loss"] {
        assert_eq!(summary(&other)[field], summary(&whole)[field], "{field} of {name}");
    }
    for file in ["steps.jsonl", "metrics.csv"] {
        let lines = |run: &Path| fs::read_to_string(run.join(file)).unwrap().lines().count();
        assert_eq!(lines(&other), lines(&whole), "{file} of {name}");
    }
}

/// Rows of epochs that somebody has cut do not come back.
#[test]
fn lost_rows_of_epochs_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["train", "--model", "mlp", "--nproc", "1", "--batch-size", "5000", "--warmup-steps", "0"];
    succeed(folder.path(), &[&args[..], &["--epochs", "2", "--out", "run"]].concat());
    let longer = |epochs: &str| {
        let output = kolo(folder.path(), &["train", "--resume", "run", "--epochs", epochs]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output)
    };
    let words = longer("4");
    assert!(!words.contains("has lost"), "{words}");
    let table = folder.path().join("run/metrics.csv");
    let text = fs::read_to_string(&table).unwrap();
    fs::write(&table, text.split_inclusive('\n').take(2).collect::<String>()).unwrap();
    let words = longer("5");
    assert!(words.contains("metrics.csv has lost its rows of epochs 2 to 4; the weights"), "{words}");
}

#[test]
fn any_number_of_workers_continues_and_damage_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let steps = five_workers(folder.path());

    interrupted(folder.path(), "two", &steps[..1]);
    let output = kolo(folder.path(), &["train", "--resume", "two", "--nproc", "2"]).output().unwrap();
    assert!(output.status.success() && !stderr(&output).contains("has lost"), "{}", stderr(&output));
    assert_eq!(summary(&folder.path().join("two"))["world_size"], 2);
    same_end(folder.path(), "two");

    // Rows that somebody has cut do not come back.
    let run = interrupted(folder.path(), "cut", &steps[..1]);
    fs::write(run.join("steps.jsonl"), "").unwrap();
    let output = kolo(folder.path(), &["train", "--resume", "cut", "--nproc", "2"]).output().unwrap();
    let words = stderr(&output);
    assert!(
        words.contains(&format!("steps.jsonl has lost its rows of steps 0 to {}", steps[0] - 1)),
        "{words}"
    );
    assert_eq!(summary(&run)["weights_sha256"], summary(&folder.path().join("two"))["weights_sha256"]);

    // One bit of the newer checkpoint.
    let run = interrupted(folder.path(), "damaged", &[steps[0], steps[1]]);
    let weights = checkpoint(&run, steps[1]).join("weights.safetensors");
    let mut data = fs::read(&weights).unwrap();
    let middle = data.len() / 2;
    data[middle] ^= 1;
    fs::write(&weights, data).unwrap();
    let (code, error) = fail(folder.path(), &["checkpoint", "damaged"]);
    assert!(code == 1 && error.contains("1 of 2") && error.contains("weights.safetensors"), "{error}");
    let output = kolo(folder.path(), &["train", "--resume", "damaged", "--nproc", "3"]).output().unwrap();
    let words = stderr(&output);
    assert!(output.status.success(), "{words}");
    let (bad, good) =
        (format!("step-{:08}/weights.safetensors is", steps[1]), format!("step-{:08}", steps[0]));
    let warning = words.lines().find(|line| line.contains("damaged: its SHA-256")).unwrap_or_default();
    assert!(warning.contains(&bad.replace(" is", "")) && warning.contains(&good), "{words}");
    same_end(folder.path(), "damaged");

    // No good checkpoint is left.
    let run = interrupted(folder.path(), "none", &steps[..1]);
    fs::remove_file(checkpoint(&run, steps[0]).join("manifest.json")).unwrap();
    let (_, error) = fail(folder.path(), &["train", "--resume", "none"]);
    assert!(error.contains("manifest.json: is missing") && error.contains("no good checkpoint"), "{error}");

    let text = succeed(folder.path(), &["checkpoint", "whole"]);
    assert!(
        text.contains("good") && text.contains("optimizer.safetensors") && text.contains("F32 ["),
        "{text}"
    );
    let one = format!("whole/checkpoints/step-{:08}", steps[0]);
    let json: serde_json::Value =
        serde_json::from_str(&succeed(folder.path(), &["checkpoint", &one, "--json"])).unwrap();
    assert_eq!(
        (json[0]["position"]["step"].as_u64(), json[0]["position"]["epoch"].as_u64()),
        (Some(steps[0]), Some(0))
    );
    assert!(json[0]["problem"].is_null() && json[0]["files"][0]["tensors"][0]["shape"].is_array(), "{json}");
    for wrong in ["nowhere", "."] {
        let (code, error) = fail(folder.path(), &["checkpoint", wrong]);
        assert!(code == 2 && error.contains(wrong), "{error}");
    }
}

/// Files in the way of two checkpoints: training continues, and the end of the run reports the last one. So
/// it is where the workers have parts of the state.
#[test]
fn a_checkpoint_that_cannot_be_written_does_not_end_training() {
    let folder = tempfile::tempdir().unwrap();
    let steps = five_workers(folder.path());
    for (name, nproc, shard) in [("stuck", "1", "nothing"), ("divided", "3", "parameters")] {
        let run = interrupted(folder.path(), name, &steps[..1]);
        let config = run.join("config.toml");
        let text = fs::read_to_string(&config).unwrap();
        let divided = text.replacen("\nshard = \"nothing\"\n", &format!("\nshard = \"{shard}\"\n"), 1);
        assert_eq!(divided == text, shard == "nothing");
        fs::write(&config, divided).unwrap();
        let in_the_way = |step: u64| run.join(format!("checkpoints/step-{step:08}"));
        let (next, last) = (in_the_way(steps[0] + EVERY), in_the_way(TOTAL));
        fs::write(&next, b"in the way").unwrap();
        fs::write(&last, b"in the way").unwrap();
        let (code, error) = fail(folder.path(), &["train", "--resume", name, "--nproc", nproc]);
        assert_eq!(code, 1, "{error}");
        let told = error.lines().find(|line| line.starts_with("error:")).unwrap_or_default();
        assert!(
            told.contains("step-00000009: is not a checkpoint")
                && told.contains("the last checkpoint could not be written"),
            "{error}"
        );
        let file = next.file_name().unwrap().to_str().unwrap();
        let warned = |line: &str| line.contains("could not write a checkpoint") && line.contains(file);
        assert!(error.lines().any(warned), "{error}");
        same_end(folder.path(), name);

        fs::remove_file(&next).unwrap();
        fs::remove_file(&last).unwrap();
        succeed(folder.path(), &["train", "--resume", name, "--nproc", "2"]);
        same_end(folder.path(), name);
    }
}

/// A job manager starts this command again after any end of the job.
#[test]
fn one_command_starts_or_resumes_and_a_complete_run_is_success() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let command = ["train", "--out", "run", "--resume-or-start", "--nproc", "2", "--batch-size", "8"];
    let lasts = ["--steps", "6", "--checkpoint-steps", "2", "--keep-checkpoints", "3"];
    let again = || {
        let output = kolo(folder.path(), &[&command[..], &lasts].concat()).output().unwrap();
        let words = stderr(&output);
        assert!(output.status.success(), "{words}");
        words
    };
    again();
    let whole = summary(&run);
    let is_the_same = || {
        for field in ["steps", "epochs", "weights_sha256", "train_loss", "test_accuracy"] {
            assert_eq!(summary(&run)[field], whole[field], "{field}");
        }
        for (file, lines) in [("steps.jsonl", 6), ("metrics.csv", 2)] {
            assert_eq!(fs::read_to_string(run.join(file)).unwrap().lines().count(), lines, "{file}");
        }
    };
    let words = again();
    assert!(words.contains("the run in run is complete: all 6 steps are done"), "{words}");
    is_the_same();

    // Killed between the last checkpoint and the summary.
    for args in [&[&command[..], &lasts].concat()[..], &["train", "--resume", "run"]] {
        fs::remove_file(run.join("summary.json")).unwrap();
        let output = kolo(folder.path(), args).output().unwrap();
        let words = stderr(&output);
        assert!(output.status.success() && words.contains("only its summary was missing"), "{words}");
        is_the_same();
    }

    // Killed before the last checkpoint, and before the first one.
    fs::remove_file(run.join("summary.json")).unwrap();
    let config = run.join("config.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replacen("\nsteps = 6\n", "\nsteps = 3\n", 1)).unwrap();
    let (code, error) = fail(folder.path(), &["train", "--resume", "run"]);
    assert!(code == 2 && error.contains("step-00000006 is after step 6, beyond the end"), "{error}");
    assert!(error.contains("3 steps with steps = 3") && !error.contains("continues after"), "{error}");
    fs::write(&config, text).unwrap();
    fs::remove_dir_all(checkpoint(&run, 6)).unwrap();
    let words = again();
    assert!(words.contains("continuing run after step 4"), "{words}");
    is_the_same();
    fs::remove_file(run.join("summary.json")).unwrap();
    fs::remove_dir_all(run.join("checkpoints")).unwrap();
    let words = again();
    assert!(!words.contains("continuing"), "{words}");
    is_the_same();

    let (code, error) = fail(folder.path(), &[&command[..], &lasts, &["--seed", "7"]].concat());
    assert!(code == 2 && error.contains("began with seed = "), "{error}");
    let (code, error) = fail(folder.path(), &["train", "--resume-or-start"]);
    assert!(code == 2 && error.contains("--out"), "{error}");
}

/// `ulimit -f`: a checkpoint above the limit fails like one on a full disk, and the message names the limit.
#[test]
fn a_limit_of_file_sizes_costs_the_checkpoint_and_not_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let words = "train --nproc 1 --batch-size 8 --steps 4 --checkpoint-steps 2 --out run";
    let script = format!("ulimit -f 64; exec {} {words}", env!("CARGO_BIN_EXE_kolo"));
    let output = std::process::Command::new("bash")
        .args(["-c", &script])
        .current_dir(folder.path())
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let words = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{words}");
    let told = words.lines().find(|line| line.starts_with("error:")).unwrap_or_default();
    assert!(told.contains("the last checkpoint could not be written"), "{words}");
    assert!(told.contains("this process may write 65536 bytes to a file: raise `ulimit -f`"), "{words}");
    assert_eq!(summary(&folder.path().join("run"))["steps"], 4);
}

/// The update of the last step overflows: the run fails on all workers and keeps nothing of it.
#[test]
fn weights_that_overflow_in_the_last_step_are_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["train", "--nproc", "2", "--batch-size", "8", "--steps", "1", "--out", "run"];
    let (code, said) =
        fail(folder.path(), &[&args[..], &["--lr", "3e38", "--weight-decay", "1000"]].concat());
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("` is not finite after step 0") && said.contains("lower the learning rate"),
        "{said}"
    );
    assert!(!folder.path().join("run/summary.json").exists());
    let checkpoints = fs::read_dir(folder.path().join("run/checkpoints"));
    assert!(checkpoints.map_or(0, Iterator::count) == 0, "none of what is not finite");
}

#[test]
fn a_learning_rate_that_single_precision_does_not_hold_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (code, said) = fail(folder.path(), &["train", "--lr", "1e40", "--out", "run"]);
    assert!(code == 2 && said.contains("--lr 1e40: it must be greater than 0 and at most 3e38"), "{said}");
    assert!(!folder.path().join("run").exists());
}
