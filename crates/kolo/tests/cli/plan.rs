//! `kolo plan`.

use std::path::Path;

use crate::program::{fail, kolo, noise_images, steps, succeed};

/// The output of code 15.1.1 of "Data-Parallel Deep Learning", to the digit.
#[test]
fn a_trillion_tokens_take_one_worker_forty_months() {
    let args = ["plan", "training", "--parameters", "7e9", "--tokens", "1e12", "--efficiency", "sqrt:0.04"];
    let told = succeed(Path::new("."), &args);
    assert!(told.contains("4.20e22 FLOP"), "{told}");
    assert!(told.contains("at 4.00e14 FLOP/s") && told.contains("1215.3 days (40.5 months)"), "{told}");
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let rows: Vec<String> = told.lines().map(words).collect();
    for row in [
        "8 151.91 89.8 % 169.10 7.2x", "64 18.99 75.8 % 25.07 48.5x", "256 4.75 61.0 % 7.79 156.1x",
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
    let args = ["plan", "memory", "--parameters", "7.5e9", "--workers", "64", "--footprint", "mixed-adam"];
    let told = succeed(Path::new("."), &args);
    let row = told.lines().last().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(row, "64 120.00 31.41 16.64 1.88 31.88", "{told}");
    let small = succeed(Path::new("."), &["plan", "memory", "--parameters", "1e6", "--workers", "1"]);
    assert!(small.contains("MB of each worker") && small.contains(" 12.00"), "{small}");
    let language = succeed(Path::new("."), &["plan", "memory", "--model", "gpt2:tiny", "--workers", "1"]);
    assert!(small.contains("f32-momentum (") && language.contains("f32-adam ("), "{language}");
    let network = succeed(Path::new("."), &["plan", "memory", "--model", "mlp", "--workers", "1"]);
    assert!(network.contains("f32-momentum ("), "{network}");
    // Names, parts and sums.
    let rows = |more: &[&str]| -> serde_json::Value {
        let args =
            [&["plan", "memory", "--workers", "4", "--footprint", "f32-adam", "--json"], more].concat();
        let told: serde_json::Value = serde_json::from_str(&succeed(Path::new("."), &args)).unwrap();
        for entry in told[0]["by_sharding"].as_array().unwrap() {
            let parts = entry["parts"].as_object().unwrap().values();
            let sum: f64 = parts.map(|part| part.as_f64().unwrap()).sum();
            assert_eq!(entry["bytes"].as_f64(), Some(sum), "{entry}");
        }
        told[0]["by_sharding"].clone()
    };
    let bytes = |rows: &serde_json::Value| -> Vec<(String, f64)> {
        let row = |entry: &serde_json::Value| {
            (entry["sharding"].as_str().unwrap().to_owned(), entry["bytes"].as_f64().unwrap())
        };
        rows.as_array().unwrap().iter().map(row).collect()
    };
    let million = rows(&["--parameters", "1e6"]);
    let expected =
        [("nothing", 16e6), ("optimizer", 10e6), ("gradients", 7e6), ("parameters", 4e6), ("host", 8e6)];
    assert_eq!(bytes(&million), expected.map(|(name, bytes)| (name.to_owned(), bytes)));
    assert_eq!((&million[3]["volume_elements"], &million[2]["bucket_bytes"]), (&3e6.into(), &4e6.into()));
    // Two of four workers hold each part, so each holds half.
    let twice = bytes(&rows(&["--parameters", "1e6", "--redundancy", "2"]));
    let expected = [("nothing", 16e6), ("optimizer", 12e6), ("gradients", 10e6), ("parameters", 8e6)];
    assert_eq!(twice, expected.map(|(name, bytes)| (name.to_owned(), bytes)));
    let small = bytes(&rows(&["--model", "gpt2:small", "--vocabulary", "50257"]));
    assert_eq!(small[0].1, 16.0 * 124_439_808.0);
    // Copies of values, all gradients as buckets, three copies of the largest tensor, and
    // the messages in which they travel.
    let on_top = |rows: &serde_json::Value| -> Vec<f64> {
        let of = |entry: &serde_json::Value| {
            entry["held_bytes"].as_f64().unwrap() - entry["bytes"].as_f64().unwrap()
        };
        rows.as_array().unwrap().iter().map(of).collect()
    };
    let known = rows(&["--parameters", "1e6", "--largest", "1e5"]);
    assert_eq!(on_top(&known), [0.0, 4e6, 8e6, 6e6, 0.0]);
    assert_eq!(on_top(&million), [0.0, 4e6, 8e6, 4e6, 0.0]);
    let language = rows(&["--model", "gpt2:small", "--vocabulary", "50257"]);
    assert_eq!(language[3]["tensor_bytes"], 3.0 * 4.0 * 50_257.0 * 768.0 + 2_097_152.0);
    rows(&["--parameters", "1e8", "--offload"]);
}

/// ResNet-18's step here, over two links, one a hundred times as fast as the other.
#[test]
fn a_step_on_more_workers_waits_for_its_link() {
    let step = ["plan", "step", "--forward-ms", "12", "--backward-ms", "18", "--optimizer-ms", "6"];
    let rest = ["--parameters", "11.2e6", "--bucket-cap-mb", "5", "--workers", "1,2,16384", "--json"];
    let rows = |link: &str| -> Vec<(f64, f64)> {
        let told = succeed(Path::new("."), &[&step[..], &rest, &["--between", link]].concat());
        let told: Vec<serde_json::Value> = serde_json::from_str(&told).unwrap();
        let number = |row: &serde_json::Value, name: &str| row[name].as_f64().unwrap();
        told.iter().map(|row| (number(row, "seconds"), number(row, "exposed"))).collect()
    };
    let [slow, fast] = ["1gbe", "100gbe"].map(rows);
    assert!((slow[0].0 - 0.036).abs() < 1e-9 && slow[0] == fast[0], "{slow:?}");
    // 44.8 MB take 0.381 s over 94 % of 1 Gbit/s, and a hundredth of that over 100 Gbit/s.
    assert!(slow[1].0 > 0.381 && slow[1].0 < 0.45, "{slow:?}");
    assert!(fast[1].0 < 0.040, "{fast:?}");
    assert!(slow[2].0 > slow[1].0 && fast[2].0 > fast[1].0, "{slow:?} {fast:?}");
}

#[test]
fn a_cluster_is_a_file() {
    let place = tempfile::tempdir().unwrap();
    let step = ["plan", "step", "--forward-ms", "100", "--backward-ms", "200", "--optimizer-ms", "9"];
    let args = [&step[..], &["--parameters", "1e9", "--cluster", "cluster.toml", "--workers", "64"]].concat();
    let write = |text: &str| std::fs::write(place.path().join("cluster.toml"), text).unwrap();
    write("workers_per_node = 8\ninside = \"nvlink4\"\nbetween = \"ndr\"\nlinks_per_node = 8\n");
    assert!(succeed(place.path(), &args).contains("64"));
    for (text, words) in [
        ("between = \"token-ring\"", "cluster.toml: there is no link `token-ring`; known are loopback"),
        ("between = { gigabits = 0, latency_us = 1 }", "cluster.toml: gigabits must be a number above 0"),
        ("inside = \"ndr\"", "cluster.toml: missing field `between`"),
        ("between = \"ndr\"\nsum_gbytes = 0", "cluster.toml: sum_gbytes must be a number above 0"),
        ("between = \"ndr\"\nworker_per_node = 8", "cluster.toml: unknown field `worker_per_node`"),
    ] {
        write(text);
        let (code, told) = fail(place.path(), &args);
        assert!(code == 2 && told.contains(words), "{told}");
    }
}

#[test]
fn what_cannot_be_planned_is_told_in_a_sentence() {
    for (args, words) in [
        (&["training", "--parameters", "x", "--tokens", "1"][..], "give a finite number above 0, as 7e9"),
        (
            &["training", "--parameters", "1", "--tokens", "1", "--efficiency", "2"],
            "`2` is no efficiency; give",
        ),
        (&["training", "--parameters", "1", "--tokens", "1", "--workers", "0"], "a job has at least one"),
        (&["memory", "--parameters", "1", "--footprint", "f8"], "known are f32-sgd, f32-momentum"),
        (&["memory", "--parameters", "9", "--redundancy", "0"], "--redundancy 0: one worker or two hold"),
        (&["memory"], "--parameters <NUMBER>|--model <NAME>"),
        (&["memory", "--model", "mlp2"], "unknown model `mlp2`; known are small, resnet18"),
        (&["memory", "--model", "mlp", "--vocabulary", "9"], "--vocabulary 9: mlp sees images and has no"),
        (&["memory", "--parameters", "1e30"], "give a number from 1 to 1e15, as 7e9"),
    ] {
        let (code, told) = fail(Path::new("."), &[&["plan"], args].concat());
        assert!(code == 2 && told.contains(words), "{told}");
    }
}

#[test]
fn stragglers_and_failures_cost_what_the_formulas_say() {
    let step = ["plan", "step", "--forward-ms", "120", "--backward-ms", "180", "--optimizer-ms", "20"];
    let rest = ["--parameters", "11.2e6", "--between", "100gbe", "--workers", "1,64,16384"];
    let disturbed = ["--spread", "10", "--worker-mtbf-hours", "50000"];
    let args = [&step[..], &rest, &disturbed].concat();
    let told = succeed(Path::new("."), &[&args[..], &["--json"]].concat());
    let rows: Vec<serde_json::Value> = serde_json::from_str(&told).unwrap();
    let number = |row: usize, name: &str| rows[row][name].as_f64().unwrap();
    // The slowest of 64 lies 2.344 standard deviations out.
    assert!((number(1, "straggling") / (0.1 * 0.320 * 2.344) - 1.0).abs() < 1e-3, "{told}");
    assert!(number(2, "goodput") > 0.99 && number(2, "goodput_with_restarts") < 0.95, "{told}");
    let table = succeed(Path::new("."), &args);
    assert!(table.contains("restarting") && table.contains("speedup"), "{table}");
    let alone = ["--recovery-s", "3"];
    let (_, error) = fail(Path::new("."), &[&step[..], &rest, &alone].concat());
    assert!(error.contains("--worker-mtbf-hours"), "{error}");
}

/// The profile is the run's own: its passes, its optimizer, its buckets.
#[test]
fn a_run_is_the_profile_of_its_step() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 96);
    let run =
        ["train", "--nproc", "1", "--shards", "2", "--model", "mlp", "--data", &data, "--batch-size", "4"];
    let cut = ["--bucket-cap-mb", "0.25", "--epochs", "4", "--out", "run"];
    succeed(folder.path(), &[&run[..], &cut].concat());
    let plan = ["plan", "step", "--from", "run", "--workers", "1,64", "--between", "1gbe"];
    let told = succeed(folder.path(), &[&plan[..], &["--json"]].concat());
    let told: Vec<serde_json::Value> = serde_json::from_str(&told).unwrap();
    let number = |row: usize, name: &str| told[row][name].as_f64().unwrap();

    let steps = steps(&folder.path().join("run")).into_iter();
    let of = |row: &serde_json::Value, name: &str| row[name].as_f64().unwrap();
    let mut own: Vec<f64> = Vec::new();
    for row in steps.skip(10) {
        let (backward, optimizer) = (of(&row, "backward_seconds"), of(&row, "optimizer_seconds"));
        let exposed = of(&row, "exposed_comm_seconds");
        assert!(backward > 0.0 && optimizer > 0.0, "{row}");
        assert!(backward + optimizer + exposed < of(&row, "seconds"), "{row}");
        own.push(of(&row, "seconds") - exposed);
    }
    own.sort_by(f64::total_cmp);
    let median = own[(own.len() - 1) / 2];
    assert!((number(0, "seconds") - median).abs() < 0.01 * median, "{told:?}");
    assert!(number(1, "exposed") > 0.0, "{told:?}");

    let buckets = std::fs::read_to_string(folder.path().join("run/buckets.csv")).unwrap();
    let rows = buckets.lines().skip(1).map(|row| row.split(',').map(|cell| cell.parse().unwrap()).collect());
    let rows: Vec<Vec<f64>> = rows.collect();
    let words = succeed(folder.path(), &plan);
    assert!(rows.len() > 1 && words.contains(&format!("in {} buckets", rows.len())), "{words}");
    assert!(words.contains(" ms a step of 2 shards; "), "{words}");
    let ready: Vec<f64> = rows.iter().map(|row| row[6]).collect();
    assert!(ready.is_sorted() && ready[0] > 0.0, "buckets become ready in their order: {buckets}");

    let output = || kolo(folder.path(), &plan).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output().stderr), "", "one worker has a core");
    let path = folder.path().join("run/summary.json");
    let summary = std::fs::read_to_string(&path).unwrap();
    assert!(summary.contains("\"workers_per_core\": 1.0"), "{summary}");
    std::fs::write(&path, summary.replace("\"workers_per_core\": 1.0", "\"workers_per_core\": 2.0")).unwrap();
    let warning = String::from_utf8(output().stderr).unwrap();
    assert!(warning.contains("--from run: each core there had 2 workers"), "{warning}");
    let config = folder.path().join("run/config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("reduction = \"sum\"", "reduction = \"ef-sign\"")).unwrap();
    let (code, error) = fail(folder.path(), &[&plan[..], &["--sync", "delayed:1"]].concat());
    assert!(code == 2 && error.contains("take a --reduction that keeps nothing"), "{error}");
}

#[test]
fn a_run_that_cannot_be_a_profile_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |args: &[&str], words: &str| {
        let (code, told) = fail(folder.path(), &[&["plan", "step"], args].concat());
        assert!(code == 2 && told.contains(words), "{told}");
    };
    refused(&["--from", "nowhere"], "nowhere");
    refused(&["--from", "run", "--forward-ms", "3"], "cannot be used with");
    refused(&["--forward-ms", "3"], "--backward-ms, --optimizer-ms, --parameters are missing");
    refused(&["--between", "10gbe"], "give --model to measure a network now, --from a run, --profile a file");
    let figures = ["--forward-ms", "3", "--backward-ms", "3", "--optimizer-ms", "3", "--parameters", "1e6"];
    let exclude = ["--sync", "delayed:1", "--reduction", "top-k"];
    refused(&[&figures[..], &exclude].concat(), "it compresses a gradient before it is known");
    std::fs::create_dir(folder.path().join("run")).unwrap();
    std::fs::write(folder.path().join("run/config.toml"), "model = \"mlp\"\nnproc = 1\n").unwrap();
    refused(&["--from", "run"], "--from run: 0 steps after the first 10 are too few");
}

/// `kolo bench profile` prints a profile; workers that share its cores take turns.
#[test]
fn a_worker_is_profiled_here_and_planned_elsewhere() {
    let place = tempfile::tempdir().unwrap();
    let bench = ["bench", "profile", "--model", "mlp", "--batch-size", "8", "--blocks", "1", "--steps", "3"];
    let told = succeed(place.path(), &[&bench[..], &["--nproc", "2"]].concat());
    let profile: serde_json::Value = serde_json::from_str(&told).unwrap();
    let number = |name: &str| profile["profile"][name].as_f64().unwrap();
    let (forward, backward) = (number("forward"), number("backward"));
    let alone = forward + backward + number("optimizer");
    let buckets = profile["profile"]["buckets"].as_array().unwrap();
    let of = |bucket: &serde_json::Value, name: &str| bucket[name].as_f64().unwrap();
    // Every bucket is ready in the backward pass and needed in the forward pass.
    assert!(buckets.len() > 1 && buckets.iter().all(|b| of(b, "ready") > 0.0 && of(b, "ready") <= backward));
    assert!(buckets.iter().all(|b| of(b, "needed") >= 0.0 && of(b, "needed") <= forward), "{told}");
    assert!(profile["full_slowdown"].as_f64().unwrap() >= 1.0 && profile["cores"] == 2, "{told}");

    std::fs::write(place.path().join("mlp.json"), &told).unwrap();
    let plan =
        ["plan", "step", "--profile", "mlp.json", "--workers", "1,8", "--json", "--full-slowdown", "1"];
    let seconds = |more: &[&str]| -> Vec<f64> {
        let told = succeed(place.path(), &[&plan[..], more].concat());
        let rows: Vec<serde_json::Value> = serde_json::from_str(&told).unwrap();
        rows.iter().map(|row| row["seconds"].as_f64().unwrap()).collect()
    };
    let (here, elsewhere) = (seconds(&["--between", "loopback"]), seconds(&["--between", "ndr"]));
    assert!((here[0] - alone).abs() < 1e-9 && (elsewhere[0] - alone).abs() < 1e-9, "{here:?} {elsewhere:?}");
    assert!(here[1] > 4.0 * alone, "eight take turns on two cores: {here:?}, alone {alone}");

    // Another batch in another precision, and its gain.
    let other = ["bench", "profile", "--model", "mlp", "--batch-size", "16", "--precision", "bf16"];
    let other =
        succeed(place.path(), &[&other[..], &["--blocks", "1", "--steps", "3", "--nproc", "2"]].concat());
    std::fs::write(place.path().join("other.json"), &other).unwrap();
    let both = ["plan", "step", "--profile", "mlp.json,other.json", "--workers", "1", "--json"];
    let told = succeed(place.path(), &[&both[..], &["--advise", "1"]].concat());
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let advice = &told["advice"][0];
    let expected = 2.0 * alone / advice["seconds"].as_f64().unwrap();
    assert!((advice["gain"].as_f64().unwrap() / expected - 1.0).abs() < 1e-9, "{told}");
    assert_eq!(advice["options"], "--batch-size 16 --precision bf16");
    // A measured reduction appears once, as it was measured.
    let mut reduced = profile.clone();
    reduced["reduction"] = "bf16".into();
    reduced["profile"]["backward"] = (3.0 * backward).into();
    std::fs::write(place.path().join("reduced.json"), reduced.to_string()).unwrap();
    let of_reduction = ["plan", "step", "--profile", "mlp.json,reduced.json", "--workers", "1", "--json"];
    let told = succeed(place.path(), &[&of_reduction[..], &["--advise", "1"]].concat());
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let advice = told["advice"].as_array().unwrap();
    let mut bf16 = advice.iter().filter(|told| told["options"] == "--reduction bf16");
    let (seconds, other) = (bf16.next().unwrap()["seconds"].as_f64().unwrap(), bf16.next());
    assert!((seconds / (alone + 2.0 * backward) - 1.0).abs() < 1e-9 && other.is_none(), "{told}");
    for (more, words) in
        [(&[][..], "--advise compares several"), (&["--advise", "1", "--reduction", "bf16"], "measure each")]
    {
        let (code, error) = fail(place.path(), &[&both[..], more].concat());
        assert!(code == 2 && error.contains(words), "{error}");
    }
    std::fs::write(place.path().join("mlp.json"), "{}").unwrap();
    let (code, error) = fail(place.path(), &plan);
    assert!(
        code == 2 && error.contains("--profile mlp.json: this is not what `kolo bench profile` prints"),
        "{error}"
    );
}

/// Fewer bytes are worth it over a slow link; over a fast one nothing is.
#[test]
fn what_a_job_may_change_is_said_with_its_worth() {
    let place = tempfile::tempdir().unwrap();
    let step = ["plan", "step", "--forward-ms", "12", "--backward-ms", "18", "--optimizer-ms", "6"];
    let rest = ["--parameters", "11.2e6", "--workers", "1,2,4", "--advise", "4", "--plot", "plan.svg"];
    let told = |more: &[&str]| succeed(place.path(), &[&step[..], &rest, more].concat());
    let report: serde_json::Value = serde_json::from_str(&told(&["--between", "1gbe", "--json"])).unwrap();
    assert_eq!(report["steps"].as_array().map(Vec::len), Some(3));
    let gain = |options: &str| {
        let found = report["advice"].as_array().unwrap().iter().find(|advice| advice["options"] == options);
        found.map(|advice| (advice["gain"].as_f64().unwrap(), advice["keeps"].as_str().unwrap().to_string()))
    };
    let (half, keeps) = gain("--reduction bf16").unwrap();
    assert!((half - 2.0).abs() < 0.15 && keeps == "nothing", "{half} {keeps}");
    let (servers, keeps) = gain("--servers 4").unwrap();
    assert!(
        servers > 1.2 && servers < 1.5 && keeps == "bits",
        "2(N-1)/N = 1.5 on the wire: {servers} {keeps}"
    );
    assert!(gain("--accumulate 4").unwrap().0 > 3.0);
    let fast = told(&["--between", "ndr"]);
    assert!(fast.contains("The best that keeps the bits: as it is."), "{fast}");
    assert!(fast.contains("The time to compress is counted only in profiles measured with"), "{fast}");
    let picture = std::fs::read_to_string(place.path().join("plan.svg")).unwrap();
    assert!(picture.contains("<svg") && picture.contains("workers") && picture.contains("predicted"));
    let reduced = ["--reduction", "powersgd:rank=2"];
    let (code, error) = fail(place.path(), &[&step[..], &rest, &reduced].concat());
    assert!(
        code == 2 && error.contains("measure it: kolo bench profile --reduction powersgd:rank=2"),
        "{error}"
    );
}
