//! A `config.toml` that was edited before its run continues: each change is used and reported, or refused.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::program::{fail, kolo, stderr, succeed, summary};

/// Continues the run and returns what it prints on standard error.
fn resume(folder: &Path) -> String {
    let output = kolo(folder, &["train", "--resume", "run"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    stderr(&output)
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_setting_that_changes_on_the_way_is_reported_and_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let begin = "train --optimizer adamw --lr 0.01 --schedule constant --warmup-steps 0 --nproc 2 --batch-size 8 \
                 --steps 4 --no-augment --out run";
    succeed(folder, &begin.split_whitespace().collect::<Vec<_>>());
    let config = folder.join("run/config.toml");
    let text = fs::read_to_string(&config).unwrap();
    let edit = |changes: &[(&str, &str)]| {
        let edited = changes.iter().fold(text.clone(), |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1)
        });
        fs::write(&config, edited).unwrap();
    };
    let changes = folder.join("run/changes.jsonl");

    // The run is over.
    edit(&[("lr = 0.01", "lr = 0.05")]);
    let words = resume(folder);
    assert!(words.contains("rate.lr = 0.05 has no effect: the run is over, and had 0.01"), "{words}");
    assert!(!changes.exists());

    for (from, to, told) in [
        ("model = \"small\"", "model = \"mlp\"", "with model = \"small\", and config.toml has \"mlp\""),
        (
            "name = \"adamw\"",
            "name = \"adam\"",
            "optimizer.name = \"adamw\", and config.toml has \"adam\": its state",
        ),
        (
            "freeze = []",
            "freeze = [\"fc.*\"]",
            "freeze = [], and config.toml has [\"fc.*\"]: its optimizer's state",
        ),
        ("reduction = \"sum\"", "reduction = \"bf16\"", "reduction = \"sum\", and config.toml has \"bf16\""),
        ("seed = 0", "seed = 1", "seed = 0, and this run has 1"),
    ] {
        edit(&[("steps = 4", "steps = 6"), (from, to)]);
        let (code, error) = fail(folder, &["train", "--resume", "run"]);
        assert!(code == 2 && error.contains(told), "{error}");
        assert!(error.contains("restore the old value"), "{error}");
        assert_eq!(error.lines().filter(|line| line.starts_with("error:")).count(), 1, "{error}");
    }

    edit(&[("steps = 4", "steps = 6"), ("lr = 0.01", "lr = 0.05"), ("beta1 = 0.9", "beta1 = 0.8")]);
    let words = resume(folder);
    for told in [
        "optimizer.settings.beta1 = 0.8 from step 4 on, and 0.9 before",
        "rate.lr = 0.05 from step 4 on, and 0.01 before",
        "steps = 6 from step 4 on, and 4 before",
    ] {
        assert_eq!(words.matches(told).count(), 1, "{told}: {words}");
    }
    let rows = lines(&changes);
    let told: Vec<_> = rows.iter().map(|row| (row["step"].as_u64(), row["setting"].as_str())).collect();
    let expected = ["optimizer.settings.beta1", "rate.lr", "steps"].map(|name| (Some(4), Some(name)));
    assert_eq!(told, expected);
    assert_eq!((&rows[1]["before"], &rows[1]["after"]), (&"0.01".into(), &"0.05".into()));
    let rates: Vec<f64> = lines(&folder.join("run/steps.jsonl"))
        .iter()
        .map(|row| row["learning_rate"].as_f64().unwrap())
        .collect();
    assert_eq!(rates, [0.01, 0.01, 0.01, 0.01, 0.05, 0.05]);
    assert_eq!(summary(&folder.join("run"))["steps"], 6);
    let report = succeed(folder, &["report", "run", "--json"]);
    assert!(report.contains("The run changed 3 settings on its way"), "{report}");

    // What has been reported is the run's own from then on.
    let words = resume(folder);
    assert!(words.contains("is complete") && !words.contains("rate.lr"), "{words}");
    let again = "train --optimizer adamw --lr 0.05 --beta1 0.8 --schedule constant --warmup-steps 0 --nproc 2 \
                 --batch-size 8 --no-augment --out run --resume-or-start";
    let args: Vec<&str> = again.split_whitespace().collect();
    let (code, error) = fail(folder, &[&args[..], &["--steps", "9"]].concat());
    assert!(code == 2 && error.contains("`kolo train --resume run --steps 9` makes it longer"), "{error}");
    let words = succeed(folder, &["train", "--resume", "run", "--steps", "9"]);
    assert_eq!(
        (lines(&changes).len(), summary(&folder.join("run"))["steps"].as_u64()),
        (4, Some(9)),
        "{words}"
    );
}
