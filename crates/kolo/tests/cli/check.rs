//! `kolo check`: it finds planted faults by their names, and nothing in a sound job.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;

use super::program::{kolo, noise_images, succeed};

/// Possible findings about this machine, not the job: other tests use its processors meanwhile.
const OF_THE_HOST: [&str; 3] = ["huge pages", "cores", "slow worker"];

struct Checked {
    code: i32,
    findings: Vec<Value>,
    facts: Value,
}

impl Checked {
    fn of(output: &Output) -> Checked {
        let (said, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        // Under `kolo launch` each line has its rank.
        let said: String = said.lines().map(|line| line.strip_prefix("[rank 0] ").unwrap_or(line)).collect();
        let report: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said} {errors}"));
        let findings = report["findings"].as_array().unwrap().clone();
        Checked { code: output.status.code().unwrap(), findings, facts: report["facts"].clone() }
    }

    /// Returns the finding of a check, which must exist.
    fn found(&self, check: &str) -> String {
        let found = self.findings.iter().find(|finding| finding["check"] == check);
        found.unwrap_or_else(|| panic!("no {check}: {:?}", self.findings))["what"].as_str().unwrap().into()
    }

    /// Returns the names of the findings about the job.
    fn names(&self) -> Vec<&str> {
        let names = self.findings.iter().map(|finding| finding["check"].as_str().unwrap());
        names.filter(|name| !OF_THE_HOST.contains(name)).collect()
    }
}

fn check(folder: &Path, args: &[&str]) -> Checked {
    Checked::of(&kolo(folder, &[&["check", "--json"], args].concat()).output().unwrap())
}

#[test]
fn nothing_stands_out_in_a_sound_job() {
    let folder = tempfile::tempdir().unwrap();
    let sound = check(folder.path(), &[]);
    assert_eq!(sound.names(), [] as [&str; 0], "{:?}", sound.findings);
    let warns = sound.findings.iter().any(|finding| finding["severity"] != "notice");
    assert_eq!(sound.code, if warns { 3 } else { 0 });
    assert_eq!(sound.facts["ranks"].as_array().unwrap().len(), 2);
    assert_eq!(sound.facts["settings"]["work"]["steps"], 1256);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it leaves nothing");
}

#[test]
fn what_settings_mean_together_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 130);
    let words =
        "--nproc 3 --shards 4 --batch-size 1 --optimizer adamw --lr 0.5 --epochs 8 --steps 20 --patience 9";
    let args: Vec<&str> = ["--data", &data].into_iter().chain(words.split(' ')).collect();
    let checked = check(folder.path(), &args);
    assert_eq!(checked.code, 3, "warnings: {:?}", checked.findings);
    for (name, words) in [
        ("shards", "4 shards on 3 workers: some have 2, others 1"),
        ("batch normalization", "small normalizes over the 1 sample of a shard"),
        ("learning rate", "a learning rate of 0.5 is high for adamw"),
        ("warm-up", "rises for 100 steps, and the run has 20: it comes to 20 %"),
        ("schedule", "ends after 20 of the 264 steps over which its learning rate falls"),
        ("steps", "the run sees 61.5 % of the samples once"),
        ("patience", "--patience 9 cannot end a run of 1 epoch"),
        ("last batch", "has 2 samples for 4 shards: 2 have none"),
    ] {
        assert!(checked.found(name).contains(words), "{name}: {}", checked.found(name));
    }
}

#[test]
fn a_large_batch_that_nothing_has_been_done_for_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 4096);
    let job = ["--nproc", "1", "--shards", "64", "--batch-size", "16", "--data", &data];
    let checked = check(folder.path(), &[&job[..], &["--warmup-steps", "0"]].concat());
    assert_eq!(checked.names(), ["batch scaling", "warm-up"], "{:?}", checked.findings);
    let remedy = ["--warmup-steps", "3", "--scale-lr", "--base-batch", "256"];
    let checked = check(folder.path(), &[&job[..], &remedy].concat());
    assert_eq!(checked.names(), [] as [&str; 0], "{:?}", checked.findings);
}

#[test]
fn what_workers_lack_is_told() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("there")).unwrap();
    // The pause exceeds the noise of a busy machine.
    let words = "--batch-size 32 --straggler rebalance --slow 1:compute:3100 --out there";
    // A shell lowers the limit of each worker; the launcher refuses one that is too low for itself.
    let program = env!("CARGO_BIN_EXE_kolo");
    let script = format!("ulimit -n 48; exec {program} check --json {words}");
    let launch = ["launch", "--nproc", "2", "--", "sh", "-c", &script];
    let checked = Checked::of(&kolo(folder.path(), &launch).output().unwrap());
    assert_eq!(checked.code, 4, "errors: {:?}", checked.findings);
    assert!(checked.found("open files").contains("may have 48 files and connections open"));
    assert!(checked.found("slow worker").starts_with("rank 1 takes"));
    assert!(checked.found("rebalance").contains("with 2 shards on 2 workers has none to move"));
    assert!(checked.found("run folder").contains("there exists already"));
}

#[test]
fn data_checkpoints_and_runs_that_are_there_are_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let checked = check(folder.path(), &["--nproc", "1", "--data", "cifar10:nowhere"]);
    assert_eq!((checked.code, checked.names()), (4, vec!["data"]), "{:?}", checked.findings);
    assert!(checked.found("data").contains("rank 0 cannot read the data"), "{:?}", checked.findings);

    let run = ["--nproc", "1", "--steps", "1", "--batch-size", "8", "--out"];
    succeed(folder.path(), &[&["train"], &run[..], &["runs/first"]].concat());
    let checked = check(folder.path(), &[&run[..], &["runs/second"]].concat());
    assert_eq!(checked.found("seed"), "runs/first has the same settings and the same seed, 0");
    assert!(!folder.path().join("runs/second").exists());
    let config = folder.path().join("runs/first/config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replacen("batch_size = 8\n", "batch_size = 9\n", 1)).unwrap();
    let checked = check(folder.path(), &["--resume", "runs/first"]);
    assert_eq!(checked.code, 4, "{:?}", checked.findings);
    assert!(checked.found("checkpoint").contains("batch_size = 8, and this run has 9"));
    std::fs::write(&config, text).unwrap();
    std::fs::remove_dir_all(folder.path().join("runs/first/checkpoints")).unwrap();
    let checked = check(folder.path(), &["--resume", "runs/first"]);
    assert_eq!(checked.code, 4, "{:?}", checked.findings);
    assert!(checked.found("checkpoint").contains("holds no checkpoint to continue from"));
}

#[test]
fn a_single_class_and_files_that_are_left_out_are_told() {
    let folder = tempfile::tempdir().unwrap();
    for (class, value) in [("rose", 10), ("tulip", 200)] {
        let place = folder.path().join("above/flowers").join(class);
        std::fs::create_dir_all(&place).unwrap();
        let image = [&b"P5 4 4 255\n"[..], &[value; 16]].concat();
        (0..8).for_each(|number| std::fs::write(place.join(format!("{number}.pgm")), &image).unwrap());
    }
    let small = ["--nproc", "1", "--model", "mlp", "--size", "4", "--batch-size", "4", "--warmup-steps", "0"];
    let of = |data: &str, more: &[&str]| {
        check(folder.path(), &[&small[..], &["--data", &format!("folder:above{data}")], more].concat())
    };
    assert!(!of("/flowers", &[]).names().contains(&"data warnings"));
    let one = of("", &[]).found("data warnings");
    let end = "above/flowers, if its folders are the classes";
    assert!(one.contains("above has 1 class, `flowers`, so there is") && one.ends_with(end), "{one}");
    std::fs::write(folder.path().join("above/flowers/rose/3.pgm"), "P5 4 4 255\n").unwrap();
    let damaged = of("/flowers", &[]).found("data");
    assert!(
        damaged.contains("rose/3.pgm is not a whole image") && damaged.contains("--skip-unreadable"),
        "{damaged}"
    );
    let skipped = of("/flowers", &["--skip-unreadable"]).found("data warnings");
    assert_eq!(skipped, "Kolo skips 1 unreadable file: rose/3.pgm");
}

/// Two nodes, each in a folder of its own, whose relative paths mean other files.
#[test]
fn nodes_that_differ_are_told() {
    let place = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let master = format!("127.0.0.1:{port}");
    let start = |node: usize| {
        let folder = place.path().join(format!("node{node}"));
        std::fs::create_dir(&folder).unwrap();
        noise_images(&folder, 64);
        let labels = folder.join("noise/train-labels-idx1-ubyte");
        let mut bytes = std::fs::read(&labels).unwrap();
        // One label of one image.
        bytes[20] = if node == 0 { 3 } else { 4 };
        std::fs::write(&labels, bytes).unwrap();
        let (number, seed) = (node.to_string(), (5 + node).to_string());
        let launch =
            ["launch", "--nproc", "1", "--nnodes", "2", "--node-rank", &number, "--master", &master, "--"];
        let program = [env!("CARGO_BIN_EXE_kolo"), "check", "--json", "--batch-size", "8", "--out", "run"];
        let job = ["--seed", &seed, "--data", "fashion-mnist:noise"];
        let mut command = kolo(&folder, &[&launch[..], &program, &job].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let nodes = [start(0), start(1)].map(|node| node.wait_with_output().unwrap());
    let checked = Checked::of(&nodes[0]);
    assert!(checked.found("settings").contains("rank 0 was started with seed = 5, rank 1"));
    assert!(checked.found("data differs").contains("but others: their hashes differ"));
    assert!(checked.found("shared folder").contains("rank 1"));
    assert_eq!(nodes.map(|node| node.status.code()), [Some(4); 2], "{:?}", checked.findings);
}

/// Rank 0's node alone would have the checkpoints.
#[test]
fn a_run_folder_that_nodes_do_not_share_is_told() {
    let place = tempfile::tempdir().unwrap();
    let shared = place.path().join("shared").display().to_string();
    for (out, is_told) in [("run", true), (&*shared, false)] {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let master = format!("127.0.0.1:{port}");
        let folder = |node: usize| place.path().join(format!("node{node}"));
        let start = |node: usize| {
            std::fs::create_dir_all(folder(node)).unwrap();
            let number = node.to_string();
            let launch = [
                "launch", "--nproc", "1", "--nnodes", "2", "--node-rank", &number, "--master", &master, "--",
            ];
            let program = [env!("CARGO_BIN_EXE_kolo"), "train", "--model", "mlp", "--batch-size", "8"];
            let job = ["--steps", "2", "--warmup-steps", "0", "--out", out];
            let mut command = kolo(&folder(node), &[&launch[..], &program, &job].concat());
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let nodes = [start(0), start(1)].map(|node| node.wait_with_output().unwrap());
        let told = nodes.each_ref().map(|node| String::from_utf8_lossy(&node.stderr).into_owned());
        assert!(nodes.iter().all(|node| node.status.success()), "{told:?}");
        let [written, own] = [0, 1].map(|node| folder(node).join(out).display().to_string());
        let words =
            format!("does not find in its run folder {own} what rank 0 writes to {written}: give all nodes");
        assert_eq!(
            [told[0].contains("does not find"), told[1].contains(&words)],
            [false, is_told],
            "{told:?}"
        );
        assert_eq!(told[1].contains("does not find"), is_told, "{told:?}");
    }
}

#[test]
fn findings_are_told_in_words_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 32);
    let args = ["check", "--nproc", "1", "--batch-size", "8", "--lr", "99", "--data", &data];
    let output = kolo(folder.path(), &args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("warning (learning rate): a learning rate of 99 is high for sgd\n"), "{said}");
    assert!(said.contains("\n    -> Give --lr between"), "{said}");
    assert!(said.trim_end().lines().next_back().unwrap().contains("warning"), "{said}");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_document_has_all_that_is_looked_for() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/check.md");
    let document = std::fs::read_to_string(document).unwrap();
    let help = succeed(Path::new("."), &["check", "--help"]);
    let checks =
        help.split_once("Looked for:\n").unwrap().1.lines().map(|line| line.trim().split_once("  ").unwrap());
    let rows: Vec<String> = checks.map(|(name, about)| format!("| {name} | {} |", about.trim())).collect();
    assert!(rows.len() > 30, "{rows:?}");
    for row in rows {
        assert!(document.contains(&row), "docs/check.md lacks {row}");
    }
}
