//! A disk that is full while a job trains, dies and ends: nothing on it is damaged, and the missing files are
//! written once there is room.

mod chaos;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use chaos::injected;
use kolo_testing::harness::{run_one_by_one, slow, test_where};
use kolo_testing::jobs::Logged;
use kolo_testing::{SmallDisk, children_that_run, send};

const STEPS: usize = 200;
const RUN: [&str; 9] =
    ["train", "--shards", "4", "--steps", "200", "--batch-size", "8", "--checkpoint-steps", "20"];

fn main() -> ExitCode {
    run_one_by_one(vec![
        test_where("a_job_goes_on_and_outlives_rank_0", a_job_goes_on_and_outlives_rank_0),
        slow(test_where("the_end_waits_for_room", the_end_waits_for_room)),
        test_where("a_job_that_is_asked_to_end_waits_for_room", || a_job_that_is_asked_to_end(&[])),
        test_where("divided_state_that_is_asked_to_end_waits_for_room", || {
            a_job_that_is_asked_to_end(&["--shard", "parameters", "--redundancy", "2"])
        }),
        test_where("a_disk_that_stays_full_is_told_and_resumed_from", a_disk_that_stays_full),
        test_where("a_job_does_not_begin_without_room_for_all", a_job_does_not_begin_without_room_for_all),
        test_where(
            "a_job_does_not_begin_without_room_on_all_nodes",
            a_job_does_not_begin_without_room_on_all_nodes,
        ),
        test_where("offloaded_state_needs_no_room_later", offloaded_state_needs_no_room_later),
        slow(test_where("chaos_fills_a_disk_up", chaos_fills_a_disk_up)),
    ])
}

/// A job on a small disk, and a folder beside the disk for its output.
struct Job {
    disk: SmallDisk,
    _beside: tempfile::TempDir,
    launcher: Logged,
}

fn kolo(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kolo"));
    command.args(args).current_dir(folder).stdin(Stdio::null());
    command
}

impl Job {
    /// Starts three workers, and waits until they train.
    fn start(more: &[&str]) -> Result<Job, String> {
        let (disk, beside) = (SmallDisk::new(16)?, tempfile::tempdir().unwrap());
        let args = [&RUN[..], &["--nproc", "3", "--out", "run"], more].concat();
        let launcher = Logged::start(&mut kolo(disk.path(), &args), beside.path().join("words"));
        let mut job = Job { disk, _beside: beside, launcher };
        let first = job.run("checkpoints/step-00000020");
        job.wait_until("checkpoints", |_| first.exists());
        Ok(job)
    }

    fn run(&self, file: &str) -> PathBuf {
        self.disk.path().join("run").join(file)
    }

    fn error_output(&self) -> String {
        self.launcher.error_output()
    }

    fn wait_until(&mut self, what: &str, holds: impl FnMut(&str) -> bool) {
        assert!(self.launcher.wait(what, holds), "{what}: {}", self.error_output());
    }

    /// Checks that every step has one whole line, that all checkpoints are whole, that no partial file is
    /// left, and that the weights are those of a run on another disk.
    fn assert_whole(&self) {
        let text = fs::read_to_string(self.run("steps.jsonl")).unwrap();
        let number = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["step"].as_u64();
        let steps: Vec<u64> = text.lines().map(|line| number(line).unwrap()).collect();
        assert!(steps.iter().copied().eq(0..STEPS as u64), "{steps:?}: {}", self.error_output());
        for folder in ["", "checkpoints"] {
            let names = fs::read_dir(self.run(folder)).unwrap();
            let names: Vec<String> =
                names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
            assert!(!names.iter().any(|name| name.ends_with(".part")), "{names:?}");
        }
        let seen = kolo(self.disk.path(), &["checkpoint", "run/checkpoints"]).output().unwrap();
        assert!(seen.status.success(), "{}", String::from_utf8_lossy(&seen.stderr));
        assert_eq!(hash(&self.run("")), expected(), "{}", self.error_output());
    }
}

/// The hash of the weights of a run on another disk.
fn expected() -> &'static str {
    static EXPECTED: OnceLock<String> = OnceLock::new();
    EXPECTED.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let alone = [&RUN[..], &["--nproc", "1", "--out", "alone"]].concat();
        let ended = kolo(folder.path(), &alone).output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        hash(&folder.path().join("alone"))
    })
}

fn hash(run: &Path) -> String {
    let text = fs::read_to_string(run.join("summary.json")).unwrap();
    serde_json::from_str::<serde_json::Value>(&text).unwrap()["weights_sha256"].to_string()
}

fn a_job_goes_on_and_outlives_rank_0() -> Result<(), String> {
    let mut job = Job::start(&[])?;
    job.disk.fill();
    job.wait_until("a warning", |said| said.contains("steps.jsonl: No space left"));
    // Rank 0 was started first.
    send("KILL", &children_that_run(env!("CARGO_BIN_EXE_kolo"), job.launcher.process.id())[..1]);
    job.wait_until("another rank 0", |said| said.contains("generation 2 of "));
    std::thread::sleep(Duration::from_secs(1));
    job.disk.free();
    let (status, said) = job.launcher.end();
    assert!(status.success(), "{said}");
    // Each rank 0 warns once.
    let told = said.matches("steps.jsonl: No space left").count();
    assert!((1..=2).contains(&told), "{told} times: {said}");
    job.assert_whole();
    Ok(())
}

/// The checkpoint of the last step is written, and so are the lines of the steps before it.
fn a_job_that_is_asked_to_end(more: &[&str]) -> Result<(), String> {
    let mut job = Job::start(more)?;
    job.disk.fill();
    job.wait_until("a warning", |said| said.contains("steps.jsonl: No space left"));
    // Divided state is tried again while all workers wait.
    let words =
        if more.is_empty() { "could not write a checkpoint" } else { "the run is over, this is tried for" };
    let tries = |said: &str| said.matches(words).count();
    let earlier = tries(&job.error_output());
    send("TERM", &[job.launcher.process.id()]);
    job.wait_until("a checkpoint without room", |said| tries(said) > earlier);
    job.disk.free();
    let (status, said) = job.launcher.end();
    assert_eq!(status.code(), Some(143), "{said}");
    assert!(said.contains("a checkpoint holds all of it"), "{said}");
    let resumed = kolo(job.disk.path(), &["train", "--nproc", "2", "--resume", "run"]).output().unwrap();
    assert!(resumed.status.success(), "{}", String::from_utf8_lossy(&resumed.stderr));
    job.assert_whole();
    Ok(())
}

fn the_end_waits_for_room() -> Result<(), String> {
    let mut job = Job::start(&[])?;
    job.disk.fill();
    job.wait_until("the end", |said| said.contains("the run is over, this is tried"));
    job.disk.free();
    let (status, said) = job.launcher.end();
    assert!(status.success(), "{said}");
    job.assert_whole();
    Ok(())
}

fn a_disk_that_stays_full() -> Result<(), String> {
    let mut job = Job::start(&["--max-restarts", "0"])?;
    job.disk.fill();
    let (status, said) = job.launcher.end();
    assert_eq!(status.code(), Some(1), "{said}");
    let error = said.lines().rfind(|line| line.starts_with("error:")).unwrap_or_default();
    assert!(error.contains("No space left") && error.contains("; make room there"), "{said}");
    assert!(said.contains("`kolo train --resume run` continues after step"), "{said}");
    job.disk.free();
    let resumed = kolo(job.disk.path(), &["train", "--resume", "run", "--nproc", "2"]).output().unwrap();
    assert!(resumed.status.success(), "{}", String::from_utf8_lossy(&resumed.stderr));
    job.assert_whole();
    Ok(())
}

/// The files of two workers have room, and that of a third one has not.
fn a_job_does_not_begin_without_room_for_all() -> Result<(), String> {
    let (disk, folder) = (SmallDisk::new(1)?, tempfile::tempdir().unwrap());
    let place = disk.path().display().to_string();
    let args = ["train", "--model", "mlp", "--nproc", "3", "--offload", &place, "--out", "run"];
    let (status, said) = Logged::start(&mut kolo(folder.path(), &args), folder.path().join("words")).end();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("needs ") && said.contains("No space left on device"), "{said}");
    assert!(!said.contains("generation 2") && said.matches("error:").count() == 1, "{said}");
    assert!(!folder.path().join("run").exists(), "{said}");
    Ok(())
}

/// The first node has room for the optimizer's state, and the second one has not.
fn a_job_does_not_begin_without_room_on_all_nodes() -> Result<(), String> {
    let disk = SmallDisk::new(1)?;
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    fs::create_dir(folders[0].path().join("state")).unwrap();
    std::os::unix::fs::symlink(disk.path(), folders[1].path().join("state")).unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let master = free.local_addr().unwrap().to_string();
    drop(free);
    let launchers = [0, 1].map(|node| {
        let (number, folder) = (node.to_string(), folders[node].path());
        let launch =
            ["launch", "--nproc", "2", "--master", &master, "--nnodes", "2", "--node-rank", &number, "--"];
        let train =
            [env!("CARGO_BIN_EXE_kolo"), "train", "--model", "mlp", "--offload", "state", "--out", "run"];
        Logged::start(&mut kolo(folder, &[&launch[..], &train].concat()), folder.join("words"))
    });
    let [(first, told), (second, said)] = launchers.map(|mut launcher| launcher.end());
    assert!(first.code() == Some(1) && second.code() == Some(1), "{told}\n{said}");
    let sentence = "the job does not begin, because of node 1: rank ";
    assert!(told.contains(sentence) && told.contains("state: this worker's part"), "{told}");
    assert!(told.contains("needs ") && told.contains(" bytes, and the disk has "), "{told}");
    assert!(said.contains("No space left on device"), "{said}");
    for words in [told, said] {
        assert!(!words.contains("generation 2") && words.matches("error:").count() == 1, "{words}");
    }
    Ok(())
}

/// After a death the survivors hold larger parts of the optimizer's state, for which the disk has no room:
/// those are in memory then, and the bits are the same.
fn offloaded_state_needs_no_room_later() -> Result<(), String> {
    let (disk, folder) = (SmallDisk::new(4)?, tempfile::tempdir().unwrap());
    let place = disk.path().display().to_string();
    let run = ["train", "--model", "mlp", "--shards", "4", "--steps", "200", "--batch-size", "8"];
    let divided = ["--shard", "optimizer", "--redundancy", "2", "--offload", &place, "--max-restarts", "0"];
    let args = [&run[..], &divided, &["--nproc", "3", "--out", "run"]].concat();
    let mut launcher = Logged::start(&mut kolo(folder.path(), &args), folder.path().join("words"));
    let steps = folder.path().join("run/steps.jsonl");
    assert!(launcher.wait("steps", |_| fs::metadata(&steps).is_ok_and(|file| file.len() > 0)));
    let victim = children_that_run(env!("CARGO_BIN_EXE_kolo"), launcher.process.id())[1];
    // Its file stays while it is open here, so its death frees no room.
    let descriptors = fs::read_dir(format!("/proc/{victim}/fd")).unwrap().flatten();
    let is_state = |path: &PathBuf| fs::read_link(path).is_ok_and(|file| file.starts_with(disk.path()));
    let open = descriptors.map(|entry| entry.path()).filter(is_state).map(fs::File::open);
    let held: Vec<fs::File> = open.map(Result::unwrap).collect();
    assert_eq!(held.len(), 1);
    disk.fill();
    send("KILL", &[victim]);
    let (status, said) = launcher.end();
    assert!(status.success() && said.contains("generation 2 of 2 workers"), "{said}");
    // The first that goes on in memory leaves room for the other one.
    let told = said.matches("; until this worker ends, that state is in memory").count();
    assert!((1..=2).contains(&told), "{told} times: {said}");
    assert!(said.contains("needs ") && said.contains("No space left on device"), "{said}");
    let alone = [&run[..], &["--nproc", "1", "--out", "alone"]].concat();
    assert!(kolo(folder.path(), &alone).status().unwrap().success());
    assert_eq!(hash(&folder.path().join("run")), hash(&folder.path().join("alone")), "{said}");
    drop(held);
    Ok(())
}

fn chaos_fills_a_disk_up() -> Result<(), String> {
    // Returns an error here if disks cannot be mounted; the runs have a disk of their own.
    drop(SmallDisk::new(1)?);
    let seeds = ["--disk-mb", "16", "--nproc", "2", "--seeds", "2", "--seed", "7", "--limit", "200"];
    injected(&[&seeds[..], &["--", "--steps", "200", "--batch-size", "4"]].concat(), "disk full for");
    Ok(())
}
