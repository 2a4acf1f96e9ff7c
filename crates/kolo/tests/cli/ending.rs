//! Jobs that end. Where it is early a checkpoint holds all that has been done, and the run goes on from there
//! to the same weights.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::elastic::{RUN, STEPS, expected, has_said, result};
use super::program::{kolo, succeed, workers};

/// Starts three workers, does something to them when they train, and waits for the job's end; gives that and
/// what was said.
fn ended_early(folder: &Path, more: &[&str], act: impl Fn(&Child)) -> (ExitStatus, String) {
    let words = folder.join("words");
    let args = [&RUN[..], &["--nproc", "3", "--out", "run"], more].concat();
    let file = std::fs::File::create(&words).unwrap();
    let mut job = kolo(folder, &args).stdout(Stdio::null()).stderr(file).spawn().unwrap();
    assert!(has_said(&mut job, &words, "3 workers over"));
    // They train when lines of steps are there.
    while std::fs::metadata(folder.join("run/steps.jsonl")).map_or(0, |file| file.len()) == 0 {
        assert!(job.try_wait().unwrap().is_none(), "it ended before it trained");
        std::thread::sleep(Duration::from_millis(5));
    }
    act(&job);
    (job.wait().unwrap(), std::fs::read_to_string(words).unwrap())
}

fn send(signal: &str, pids: &[u32]) {
    let pids = pids.iter().map(u32::to_string);
    assert!(Command::new("kill").arg(signal).args(pids).status().unwrap().success());
}

/// It says after which step the run goes on, which it then does with two workers.
fn goes_on(folder: &Path, words: &str) {
    let after = words.split("`kolo train --resume run` goes on after step ").nth(1);
    let step: u64 = after.unwrap_or_else(|| panic!("{words}")).trim().parse().unwrap();
    assert!(folder.join(format!("run/checkpoints/step-{step:08}")).is_dir() && step < 150, "{words}");
    succeed(folder, &["train", "--resume", "run", "--nproc", "2"]);
    assert_eq!(result(folder), expected(), "{words}");
}

#[test]
fn a_job_that_is_asked_to_end_can_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let (status, words) = ended_early(folder.path(), &[], |job| send("-TERM", &[job.id()]));
    assert_eq!(status.code(), Some(143), "{words}");
    assert!(words.contains("error: ended by SIGTERM"), "{words}");
    goes_on(folder.path(), &words);
}

/// As some job managers do it; the launcher is not asked.
#[test]
fn workers_that_are_all_asked_to_end_keep_what_they_have() {
    let folder = tempfile::tempdir().unwrap();
    let more = ["--min", "2", "--transport", "tcp"];
    let (status, words) = ended_early(folder.path(), &more, |job| send("-TERM", &workers(job)));
    assert!(words.contains("a checkpoint holds all of it"), "{words}");
    // Either all leave at once, or one waits in vain for enough others.
    assert!([Some(143), Some(1)].contains(&status.code()), "{words}");
    goes_on(folder.path(), &words);
}

#[test]
fn too_few_workers_keep_what_they_have() {
    for transport in ["shm", "tcp"] {
        let folder = tempfile::tempdir().unwrap();
        let more = ["--min", "3", "--max-restarts", "0", "--transport", transport];
        let (status, words) = ended_early(folder.path(), &more, |job| send("-KILL", &workers(job)[..1]));
        assert_eq!(status.code(), Some(137), "{words}");
        assert!(words.contains("rank 0 ") && words.contains("SIGKILL"), "{words}");
        goes_on(folder.path(), &words);
    }
}

/// Rank 0 is kept from writing the summary by a pipe that nobody reads, and killed there: another one writes
/// it.
#[test]
fn nobody_goes_before_the_summary_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (run, words) = (folder.path().join("run"), folder.path().join("words"));
    let args = [&RUN[..], &["--nproc", "3", "--max-restarts", "0", "--out", "run"]].concat();
    let file = std::fs::File::create(&words).unwrap();
    let mut job = kolo(folder.path(), &args).stdout(Stdio::null()).stderr(file).spawn().unwrap();
    assert!(has_said(&mut job, &words, "3 workers over"));
    let pipe = run.join(".summary.json.part");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let until = Instant::now() + Duration::from_secs(100);
    while !run.join(format!("checkpoints/step-{STEPS:08}")).exists() {
        assert!(Instant::now() < until, "{}", std::fs::read_to_string(&words).unwrap());
        std::thread::sleep(Duration::from_millis(20));
    }
    // Nothing but the summary is left to be written.
    std::thread::sleep(Duration::from_secs(1));
    let first = workers(&job)[0];
    std::fs::remove_file(&pipe).unwrap();
    assert!(Command::new("kill").args(["-9".into(), first.to_string()]).status().unwrap().success());
    let status = job.wait().unwrap();
    let words = std::fs::read_to_string(words).unwrap();
    assert!(status.success() && words.contains("generation 2 of 2 workers"), "{words}");
    assert_eq!(result(folder.path()), expected(), "{words}");
}
