//! From run folders to a page.

mod folder;

use std::fs;
use std::path::PathBuf;

use folder::write_run;
use kolo_report::Report;

#[test]
fn several_runs_make_one_page() {
    let place = tempfile::tempdir().unwrap();
    let folders: Vec<PathBuf> = ["one", "two"].map(|name| place.path().join(name)).into();
    write_run(&folders[0], 1000);
    write_run(&folders[1], 120);
    let out = place.path().join("report.html");
    let report = Report::read(&folders).unwrap();
    report.write(&out).unwrap();
    let page = fs::read_to_string(&out).unwrap();
    for part in
        ["What ran, side by side", "All settings are the same.", "two: Workers over steps", "&lt;script&gt;"]
    {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<script"), "words of a file are no markup");
    assert!(page.len() < 600_000, "{} bytes", page.len());
    let headlines = report.headlines();
    assert!(headlines[0].starts_with("one: warning: The run gave 1 warning"), "{headlines:?}");
    assert!(
        headlines[1].starts_with("one: notice: The job went on with other workers twice"),
        "{headlines:?}"
    );
}

#[test]
fn the_page_of_a_running_job_names_missing_files() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("run");
    write_run(&folder, 100);
    for name in ["summary.json", "buckets.csv", "generations.jsonl", "metrics.csv"] {
        fs::remove_file(folder.join(name)).unwrap();
    }
    let steps = fs::read_to_string(folder.join("steps.jsonl")).unwrap();
    fs::write(folder.join("steps.jsonl"), &steps[..steps.len() - 30]).unwrap();
    let page = Report::read(&[folder]).unwrap().html();
    for part in [
        "There is no summary.json",
        "There is no buckets.csv",
        "There is no metrics.csv",
        "The last line of steps.jsonl is half written",
        "There is no generations.jsonl",
        "Nothing stands out.",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn a_broken_line_is_named() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("run");
    for (file, line) in
        [("steps.jsonl", 40), ("generations.jsonl", 2), ("metrics.csv", 3), ("buckets.csv", 5)]
    {
        write_run(&folder, 100);
        let text = fs::read_to_string(folder.join(file)).unwrap();
        let broken = text.lines().enumerate().map(|(index, text)| match index + 1 == line {
            true => "0.1.2,{\n".to_owned(),
            false => format!("{text}\n"),
        });
        fs::write(folder.join(file), broken.collect::<String>()).unwrap();
        let error = Report::read(std::slice::from_ref(&folder)).unwrap_err().to_string();
        assert!(error.contains(&format!("{file} line {line}: ")), "{error}");
    }
}

/// Any content of a folder gives a page or an error.
#[test]
fn damaged_files_make_no_panic() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("run");
    let mut chance = 1_u64;
    let mut draw = move |below: usize| {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (chance >> 33) as usize % below
    };
    let mut pages = 0;
    for file in
        ["config.toml", "steps.jsonl", "metrics.csv", "buckets.csv", "generations.jsonl", "summary.json"]
    {
        write_run(&folder, 40);
        let whole = fs::read(folder.join(file)).unwrap();
        for _ in 0..200 {
            let mut damaged = whole.clone();
            for _ in 0..=draw(3) {
                let place = draw(damaged.len());
                match draw(4) {
                    0 => damaged.truncate(place + 1),
                    1 => damaged[place] = b"0123456789eE-.,\n\"{}[]="[draw(22)],
                    2 => drop(damaged.splice(place..place, *b"99999999999999999")),
                    _ => damaged[place] = draw(256) as u8,
                }
            }
            fs::write(folder.join(file), damaged).unwrap();
            if let Ok(report) = Report::read(std::slice::from_ref(&folder)) {
                pages += 1;
                let page = report.html();
                assert!(!page.contains("d=\"MNaN") && !page.contains("LNaN"), "{file}");
            }
        }
    }
    assert!(pages > 100, "{pages} of 1200 had a page");
}
