//! `kolo plan`.

use std::path::Path;

use crate::program::{fail, succeed};

/// The output of code 15.1.1 of the text that this project began with, to the digit.
#[test]
fn a_trillion_tokens_take_one_worker_forty_months() {
    let args = ["plan", "training", "--parameters", "7e9", "--tokens", "1e12", "--efficiency", "sqrt:0.04"];
    let told = succeed(Path::new("."), &args);
    assert!(told.contains("4.20e22 FLOP"), "{told}");
    assert!(told.contains("at 4.00e14 FLOP/s") && told.contains("1215.3 days (40.5 months)"), "{told}");
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let rows: Vec<String> = told.lines().map(words).collect();
    for row in [
        "8 151.91 89.8 % 169.10 7.2x",
        "64 18.99 75.8 % 25.07 48.5x",
        "256 4.75 61.0 % 7.79 156.1x",
        "1024 1.19 43.9 % 2.71 449.1x",
    ] {
        assert!(rows.iter().any(|told| told == row), "{row}: {told}");
    }
}

#[test]
fn what_binds_and_what_it_costs_are_told() {
    let model =
        ["plan", "training", "--parameters", "175e9", "--tokens", "3e11", "--workers", "1024", "--json"];
    let machine = ["--memory", "80e9", "--watts", "700", "--kwh-price", "0.1", "--hour-price", "2"];
    let told = succeed(Path::new("."), &[&model[..], &machine].concat());
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let row = &told["rows"][0];
    assert_eq!(row["binds"]["memory"]["missing"], 16.0 * 175e9 - 80e9, "{told}");
    let hours = row["seconds"].as_f64().unwrap() / 3600.0 * 1024.0;
    let near =
        |value: &serde_json::Value, expected: f64| (value.as_f64().unwrap() / expected - 1.0).abs() < 1e-9;
    assert!(near(&row["bill"]["energy"], hours * 0.84), "{told}");
    assert!(near(&row["bill"]["workers_price"], hours * 2.0), "{told}");
}

/// The figures of the ZeRO paper.
#[test]
fn memory_is_told_by_what_is_shared_out() {
    let args = ["plan", "memory", "--parameters", "7.5e9", "--workers", "64"];
    let told = succeed(Path::new("."), &args);
    let row = told.lines().last().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(row, "64 120.00 31.41 16.64 1.88", "{told}");
}

#[test]
fn what_cannot_be_planned_is_told_in_a_sentence() {
    for (args, words) in [
        (&["training", "--parameters", "x", "--tokens", "1"][..], "give a number above 0, as 7e9"),
        (
            &["training", "--parameters", "1", "--tokens", "1", "--efficiency", "2"],
            "`2` is no efficiency; give",
        ),
        (&["training", "--parameters", "1", "--tokens", "1", "--workers", "0"], "a job has at least one"),
        (&["memory", "--parameters", "1", "--footprint", "f8"], "known are f32-sgd, f32-momentum"),
    ] {
        let (code, told) = fail(Path::new("."), &[&["plan"], args].concat());
        assert!(code == 2 && told.contains(words), "{told}");
    }
}
