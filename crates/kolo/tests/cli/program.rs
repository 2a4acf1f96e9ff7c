//! Runs `kolo` and reads its output and files.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use kolo_testing::jobs::Logged;

/// Returns a command for the program under test, in a folder of its own.
pub fn kolo(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kolo"));
    command.args(args).current_dir(folder).stdin(Stdio::null());
    for name in ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "KOLO_TRANSPORT"] {
        command.env_remove(name);
    }
    // A backtrace takes seconds on a busy machine, in which the others give up.
    command.env_remove("RUST_BACKTRACE");
    command
}

/// Starts `kolo` with its error output in the file `words` of the folder.
pub fn start(folder: &Path, args: &[&str]) -> Logged {
    Logged::start(&mut kolo(folder, args), folder.join("words"))
}

/// Runs `kolo`, which must succeed, and returns its output.
pub fn succeed(folder: &Path, args: &[&str]) -> String {
    let output = kolo(folder, args).output().unwrap();
    assert!(output.status.success(), "kolo {args:?}: {}", stderr(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs `kolo chaos --json`, which must succeed; returns its lines and its report.
pub fn chaos(folder: &Path, args: &[&str]) -> (String, serde_json::Value) {
    let output = kolo(folder, &[&["chaos", "--json", "--limit", "120"], args].concat()).output().unwrap();
    assert!(output.status.success(), "kolo chaos {args:?}: {}", stderr(&output));
    (stderr(&output), serde_json::from_slice(&output.stdout).unwrap())
}

/// Runs `kolo`, which must fail; returns the exit code and the error output.
pub fn fail(folder: &Path, args: &[&str]) -> (i32, String) {
    let output = kolo(folder, args).output().unwrap();
    assert!(!output.status.success(), "kolo {args:?} should fail");
    (output.status.code().unwrap_or(-1), stderr(&output))
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn summary(run: &Path) -> serde_json::Value {
    let path = run.join("summary.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// Returns the lines of a run's `steps.jsonl`.
pub fn steps(run: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(run.join("steps.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the lines of a run's `steps.jsonl`, which must have the numbers of `expected`.
pub fn all_steps(run: &Path, expected: std::ops::Range<u64>) -> Vec<serde_json::Value> {
    let steps = steps(run);
    assert!(steps.iter().map(|step| step["step"].as_u64().unwrap()).eq(expected), "{steps:?}");
    steps
}

/// Makes a complete run one that was interrupted after its first checkpoint.
pub fn cut_after_first_checkpoint(run: &Path) {
    let checkpoints = std::fs::read_dir(run.join("checkpoints")).unwrap();
    let mut paths: Vec<_> = checkpoints.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.drain(1..).for_each(|path| std::fs::remove_dir_all(path).unwrap());
    std::fs::remove_file(run.join("summary.json")).unwrap();
}

/// Returns the workers among a launcher's children.
pub fn workers(launcher: &Child) -> Vec<u32> {
    children(launcher.id())
}

/// Returns the children of a process that run this same program.
pub fn children(parent: u32) -> Vec<u32> {
    kolo_testing::children_that_run(env!("CARGO_BIN_EXE_kolo"), parent)
}

/// Writes a data set in the format of MNIST: so many training images of noise, and 20 test images. Returns
/// the argument of `--data`; flips and shifts apply.
pub fn noise_images(folder: &Path, train: usize) -> String {
    let data = folder.join("noise");
    std::fs::create_dir(&data).unwrap();
    for (part, count) in [("train", train), ("t10k", 20)] {
        let number = |n: usize| u32::try_from(n).unwrap().to_be_bytes();
        let pixels = (0..count * 784).map(|i| ((i * 2_654_435_761) >> 7) as u8);
        let images = [number(0x803), number(count), number(28), number(28)].concat();
        let labels = [number(0x801), number(count)].concat();
        let file = |name: &str| data.join(format!("{part}-{name}-ubyte"));
        std::fs::write(file("images-idx3"), images.into_iter().chain(pixels).collect::<Vec<u8>>()).unwrap();
        let classes = (0..count).map(|i| (i * i % 10) as u8);
        std::fs::write(file("labels-idx1"), labels.into_iter().chain(classes).collect::<Vec<u8>>()).unwrap();
    }
    format!("fashion-mnist:{}", data.display())
}
