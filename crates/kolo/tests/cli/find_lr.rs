//! `kolo train --find-lr`.

use std::fs;

use super::program::{fail, kolo, noise_images, stderr, succeed};

#[test]
fn the_rates_are_tried_alike_by_any_workers_and_nothing_is_trained() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let data = noise_images(folder, 64);
    let train = |nproc: &str, out: &str| {
        let args = ["train", "--find-lr", "40", "--model", "mlp", "--data", &data, "--shards", "2"];
        succeed(folder, &[&args[..], &["--batch-size", "8", "--nproc", nproc, "--out", out]].concat())
    };
    let printed = train("1", "one");
    train("2", "two");
    let args =
        ["train", "--find-lr", "40", "--model", "mlp", "--data", &data, "--nproc", "1", "--out", "three"];
    let words = stderr(&kolo(folder, &args).output().unwrap());
    assert!(!words.contains("warning") && words.contains("the rate grows from 1e-7 to 10"), "{words}");
    let table = fs::read_to_string(folder.join("one/learning-rates.csv")).unwrap();
    assert_eq!(fs::read_to_string(folder.join("two/learning-rates.csv")).unwrap(), table);
    assert!(fs::read_to_string(folder.join("one/learning-rates.svg")).unwrap().contains("smoothed loss"));
    for name in ["summary.json", "best", "steps.jsonl"] {
        assert!(!folder.join("one").join(name).exists(), "{name}");
    }
    let checkpoints = fs::read_dir(folder.join("one/checkpoints"));
    assert!(checkpoints.map_or(0, Iterator::count) == 0);

    let mut lines = table.lines();
    assert_eq!(lines.next(), Some("step,learning_rate,loss,smoothed_loss"));
    let rows: Vec<Vec<f64>> =
        lines.map(|line| line.split(',').map(|cell| cell.parse().unwrap()).collect()).collect();
    assert!(rows.len() > 20, "{table}");
    let close =
        |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-9, "{found} {expected}");
    let (mut sum, mut lowest) = (0.0, (0.0, f64::INFINITY));
    for (step, row) in rows.iter().enumerate() {
        close(row[1], 10f64.powf(8.0 * step as f64 / 39.0 - 7.0));
        sum = 0.9 * sum + 0.1 * row[2];
        close(row[3], sum / (1.0 - 0.9f64.powi(step as i32 + 1)));
        if row[3] < lowest.1 {
            lowest = (row[1], row[3]);
        }
        // The last one has ended the test.
        assert_eq!(row[3] > 4.0 * lowest.1, step + 1 == rows.len() && rows.len() < 40);
    }
    for words in ["sha256", "train loss"] {
        assert!(!printed.contains(words), "{printed}");
    }
    // Ten classes by chance: ln 10.
    assert!((rows[0][2] - 10f64.ln()).abs() < 0.5, "{table}");
    let suggested = format!("suggested: --lr {:.1e}, a tenth of {:.1e}", lowest.0 / 10.0, lowest.0);
    assert!(printed.contains(&suggested) && printed.contains("picture: one/learning-rates.svg"), "{printed}");
}

#[test]
fn what_a_range_test_cannot_do_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 64);
    let train = ["train", "--model", "mlp", "--data", &data, "--nproc", "1", "--batch-size", "8"];
    for (args, words) in [
        (&["--find-lr", "5"][..], "a range test takes a number of steps, at least 10"),
        (&["--find-lr", "20", "--steps", "7"], "cannot be used with '--steps"),
        (&["--find-lr", "--max-hours", "1e-9"], "--find-lr with --max-hours"),
        (&["--find-lr", "--resume", "run"], "cannot be used with"),
        (&["--find-lr", "--sync", "local"], "--find-lr with --sync"),
    ] {
        let (code, error) = fail(folder.path(), &[&train[..], args].concat());
        assert!(code == 2 && error.contains(words), "{args:?}: {code} {error}");
    }
}

/// All gradients are infinite with such a scale, so no weight moves and the losses tell nothing of the rates.
#[test]
fn steps_that_train_nothing_suggest_no_rate() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 64);
    let args =
        ["train", "--find-lr", "10", "--model", "mlp", "--data", &data, "--nproc", "1", "--batch-size"];
    let more = ["8", "--precision", "f16", "--loss-scale", "1e30", "--warmup-steps", "500", "--out", "run"];
    let printed = succeed(folder.path(), &[&args[..], &more].concat());
    assert!(printed.contains("no rate is suggested: 10 of 10 steps trained nothing"), "{printed}");
    assert!(!printed.contains("suggested: --lr") && !printed.contains("--warmup-steps"), "{printed}");
    let (code, error) = fail(folder.path(), &["report", "run"]);
    assert!(code == 2 && error.contains("run is the folder of a learning-rate range test"), "{error}");
}
