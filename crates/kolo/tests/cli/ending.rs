//! Jobs that end. A checkpoint holds all the work of a job that ends early, and the run continues from there
//! to the same weights.

use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use kolo_testing::jobs::Logged;
use kolo_testing::{ignores, selected, send, wait_until};

use super::elastic::{RUN, STEPS, expected, result};
use super::program::{fail, kolo, start, succeed, workers};

/// Starts three workers, acts on them while they train, and waits for the job's end. Returns the status and
/// the output.
fn ended_early(folder: &Path, more: &[&str], act: impl Fn(&Child)) -> (ExitStatus, String) {
    let mut job = start(folder, &[&RUN[..], &["--nproc", "3", "--out", "run"], more].concat());
    assert!(job.has_said("3 workers over"));
    // Lines of steps show that they train.
    let steps = || std::fs::metadata(folder.join("run/steps.jsonl")).map_or(0, |file| file.len());
    assert!(job.wait("it does not train", |_| steps() > 0), "it ended before it trained");
    act(&job.process);
    job.end()
}

/// Numbers of the signals that may be ignored here.
const IGNORED: [(&str, i32); 2] = [("HUP", 1), ("INT", 2)];

fn ignored(signal: &str) -> bool {
    IGNORED.iter().any(|(name, number)| *name == signal && ignores(*number))
}

/// Checks that the output names the step of the checkpoint, and resumes the run with two workers.
fn goes_on(folder: &Path, words: &str) {
    let after = words.split("`kolo train --resume run` continues after step ").nth(1);
    let step: u64 = after.unwrap_or_else(|| panic!("{words}")).trim().parse().unwrap();
    assert!(
        folder.join(format!("run/checkpoints/step-{step:08}")).is_dir() && step < STEPS as u64,
        "{words}"
    );
    succeed(folder, &["train", "--resume", "run", "--nproc", "2"]);
    assert_eq!(result(folder), expected(), "{words}");
}

#[test]
fn a_job_that_is_asked_to_end_can_go_on() {
    let cases = [
        ("TERM", 143, &[][..]),
        ("USR1", 138, &["--stop-on", "usr1"]),
        ("INT", 130, &[]),
        ("HUP", 129, &[]),
        ("XCPU", 152, &[]),
    ];
    for (signal, code, more) in selected(2, cases) {
        if ignored(signal) {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        // A terminal and a job manager may both send the signal.
        let twice = |job: &Child| [(); 2].into_iter().for_each(|()| send(signal, &[job.id()]));
        let (status, words) = ended_early(folder.path(), more, twice);
        assert_eq!(status.code(), Some(code), "{words}");
        assert!(words.contains(&format!("error: ended by SIG{signal}")), "{words}");
        goes_on(folder.path(), &words);
    }
}

/// A signal during the evaluation: the job saves its weights at once, and the resumed run evaluates them.
#[test]
fn a_job_that_is_asked_to_end_while_it_evaluates_can_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    // One test image at a time: that takes many seconds.
    let args = [&RUN[..], &["--nproc", "2", "--out", "run", "--test-batch-size", "1"]].concat();
    let mut job = start(folder.path(), &args);
    let steps = || std::fs::read_to_string(run.join("steps.jsonl")).unwrap_or_default().lines().count();
    // The last lines of an epoch are written just before its evaluation.
    let epoch = 10_000 / (6 * 8) + 1;
    wait_until("no epoch has ended", || steps() == epoch);
    send("TERM", &[job.process.id()]);
    let (status, words) = job.end();
    assert_eq!(status.code(), Some(143), "{words}");
    assert!(words.contains(&format!("the run has ended after step {epoch} of {STEPS}")), "{words}");
    let metrics = std::fs::read_to_string(run.join("metrics.csv")).unwrap();
    assert_eq!(metrics.lines().count(), 1, "it has evaluated to the end: {metrics}");
    goes_on(folder.path(), &words);
    let metrics = std::fs::read_to_string(run.join("metrics.csv")).unwrap();
    assert_eq!(metrics.lines().count(), 3, "{metrics}");
}

fn launched(folder: &Path, more: &[&str]) -> Logged {
    let launch = ["launch", "--nproc", "2", "--", env!("CARGO_BIN_EXE_kolo")];
    start(folder, &[&launch[..], &RUN, &["--out", "run"], more].concat())
}

#[test]
fn a_launcher_heeds_the_signals_of_the_run_that_it_starts() {
    let folder = tempfile::tempdir().unwrap();
    let mut job = launched(folder.path(), &["--stop-on", "usr1"]);
    let steps = folder.path().join("run/steps.jsonl");
    let has_steps = || std::fs::metadata(&steps).is_ok_and(|file| file.len() > 0);
    assert!(job.wait("it does not train", |_| has_steps()));
    send("USR1", &[job.process.id()]);
    let (status, words) = job.end();
    assert_eq!(status.code(), Some(138), "{words}");
    goes_on(folder.path(), &words);
}

/// The same command may be given again.
#[test]
fn a_job_that_ends_before_the_first_step_leaves_nothing() {
    let alone = |folder: &Path| start(folder, &[&RUN[..], &["--nproc", "2", "--out", "run"]].concat());
    for begin in [&alone as &dyn Fn(&Path) -> Logged, &|folder| launched(folder, &[])] {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let mut job = begin(folder.path());
        assert!(job.wait("there is no run folder", |_| run.join("config.toml").exists()));
        send("TERM", &[job.process.id()]);
        let (status, words) = job.end();
        assert_eq!(status.code(), Some(143), "{words}");
        // On a busy machine it may have made a step.
        if !run.join("steps.jsonl").exists() {
            assert!(!run.exists() && words.contains("the same command begins the run"), "{words}");
        }
    }
}

/// Workers without a launcher of Kolo's: all end after the same step as the first one that gets the signal.
#[test]
fn workers_of_a_fixed_group_end_after_the_same_step() {
    for (signal, asked) in selected(1, [("TERM", &[1][..]), ("INT", &[0, 1, 2]), ("HUP", &[0])]) {
        if ignored(signal) {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut group = FixedGroup::start(folder.path(), 3);
        group.wait_for_steps();
        send(signal, &asked.iter().map(|rank| group.workers[*rank].process.id()).collect::<Vec<_>>());
        let (codes, words) = group.end();
        assert_eq!(codes, [Some(143); 3], "{words}");
        let after = words.split("the workers have been asked to end: the run has ended after step ").nth(1);
        let step = after.unwrap_or_else(|| panic!("{words}")).split(' ').next().unwrap();
        assert!(words.contains("a checkpoint holds all of it"), "{words}");
        let step: u64 = step.parse().unwrap();
        assert!(folder.path().join(format!("run/checkpoints/step-{step:08}")).is_dir(), "{words}");
        succeed(folder.path(), &["train", "--resume", "run", "--nproc", "2"]);
        assert_eq!(result(folder.path()), expected(), "{words}");
    }
}

/// Without a launcher, a second signal ends a worker.
#[test]
fn a_second_request_ends_a_worker_that_waits() {
    let folder = tempfile::tempdir().unwrap();
    let mut group = FixedGroup::start(folder.path(), 2);
    group.wait_for_steps();
    // The worker waits for the other one, which never comes to the end of a step.
    send("STOP", &[group.workers[1].process.id()]);
    let begun = Instant::now();
    while group.workers[0].process.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it goes on");
        send("TERM", &[group.workers[0].process.id()]);
        std::thread::sleep(Duration::from_millis(100));
    }
    send("KILL", &[group.workers[1].process.id()]);
    let (codes, words) = group.end();
    // The signal ended it, unless it gave up on the other one before.
    assert!(codes[0].is_none() && !words.contains("panicked"), "{codes:?} {words}");
}

/// All of a job is stopped, and continued after longer than its members wait for each other.
#[test]
fn a_job_that_is_stopped_goes_on() {
    let away = Duration::from_secs(18);
    let with_a_launcher = || {
        let folder = tempfile::tempdir().unwrap();
        let (status, words) = ended_early(folder.path(), &[], |job| {
            send("STOP", &workers(job));
            std::thread::sleep(away);
            send("CONT", &workers(job));
        });
        assert!(status.success() && !words.contains("generation 2"), "{words}");
        assert_eq!(result(folder.path()), expected(), "{words}");
    };
    // Without a launcher, a worker could take the others for hanging.
    let without_one = || {
        let folder = tempfile::tempdir().unwrap();
        let mut group = FixedGroup::start_with(folder.path(), 3, &[("KOLO_TIMEOUT", "15")]);
        group.wait_for_steps();
        let all: Vec<u32> = group.workers.iter().map(|worker| worker.process.id()).collect();
        send("STOP", &all);
        std::thread::sleep(away);
        send("CONT", &all);
        let (codes, words) = group.end();
        assert_eq!(codes, [Some(0); 3], "{words}");
        assert_eq!(result(folder.path()), expected(), "{words}");
    };
    std::thread::scope(|scope| {
        scope.spawn(with_a_launcher);
        scope.spawn(without_one);
    });
}

/// Workers started by hand.
struct FixedGroup {
    workers: Vec<Logged>,
    steps: std::path::PathBuf,
}

impl FixedGroup {
    fn start(folder: &Path, size: usize) -> FixedGroup {
        Self::start_with(folder, size, &[])
    }

    fn start_with(folder: &Path, size: usize, variables: &[(&str, &str)]) -> FixedGroup {
        let port = kolo_testing::free_port().port().to_string();
        let args = [&RUN[..], &["--out", "run"]].concat();
        let start = |rank: usize| {
            let mut command = kolo(folder, &args);
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", size.to_string());
            command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", &port).envs(variables.iter().copied());
            Logged::start(&mut command, folder.join(format!("words.{rank}")))
        };
        FixedGroup { workers: (0..size).map(start).collect(), steps: folder.join("run/steps.jsonl") }
    }

    fn wait_for_steps(&mut self) {
        let steps = || std::fs::metadata(&self.steps).is_ok_and(|file| file.len() > 0);
        assert!(self.workers[0].wait("no step is done", |_| steps()), "{}", self.workers[0].error_output());
    }

    fn end(mut self) -> (Vec<Option<i32>>, String) {
        let ends: Vec<(ExitStatus, String)> = self.workers.iter_mut().map(Logged::end).collect();
        (
            ends.iter().map(|(status, _)| status.code()).collect(),
            ends.into_iter().map(|(_, said)| said).collect(),
        )
    }
}

/// Some job managers signal the workers and not the launcher.
#[test]
fn workers_that_are_all_asked_to_end_keep_what_they_have() {
    let folder = tempfile::tempdir().unwrap();
    let more = ["--min", "2", "--transport", "tcp"];
    let (status, words) = ended_early(folder.path(), &more, |job| send("TERM", &workers(job)));
    assert!(words.contains("a checkpoint holds all of it"), "{words}");
    // Either all leave at once, or one waits in vain for enough others.
    assert!([Some(143), Some(1)].contains(&status.code()), "{words}");
    goes_on(folder.path(), &words);
}

#[test]
fn too_few_workers_keep_what_they_have() {
    // Where state is divided, none of the two survivors has all of it.
    let cases = [
        ("shm", &[][..]),
        ("tcp", &["--shard", "parameters", "--redundancy", "2"]),
        ("shm", &["--shard", "optimizer", "--redundancy", "2"]),
        ("shm", &["--shard", "host"]),
    ];
    for (transport, more) in selected(2, cases) {
        let folder = tempfile::tempdir().unwrap();
        let more = [&["--min", "3", "--max-restarts", "0", "--transport", transport], more].concat();
        let (status, words) = ended_early(folder.path(), &more, |job| send("KILL", &workers(job)[..1]));
        assert_eq!(status.code(), Some(137), "{words}");
        assert!(words.contains("rank 0 ") && words.contains("SIGKILL"), "{words}");
        goes_on(folder.path(), &words);
    }
}

/// The first update overflows, on all workers of an elastic job: the configuration shows why.
#[test]
fn a_divergence_in_the_first_step_keeps_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let large = ["--lr", "1e38", "--weight-decay", "1e38", "--warmup-steps", "0", "--optimizer", "sgd"];
    let (code, words) = fail(folder.path(), &[&RUN[..], &["--nproc", "3", "--out", "run"], &large].concat());
    assert_eq!(code, 1, "{words}");
    assert!(words.contains("is not finite after step 0") && words.matches("error:").count() == 1, "{words}");
    assert!(words.contains("(run keeps its configuration)"), "{words}");
    let config = std::fs::read_to_string(folder.path().join("run/config.toml")).unwrap();
    assert!(
        config.contains("1e38") || config.contains("100000000000000000000000000000000000000"),
        "{config}"
    );
    // Nobody repeats the step.
    assert!(!words.contains("generation 2"), "{words}");
}

/// A folder in place of its draft keeps rank 0 from writing the summary until it is killed; another rank
/// writes it.
#[test]
fn nobody_goes_before_the_summary_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let args = [&RUN[..], &["--nproc", "3", "--max-restarts", "0", "--out", "run"]].concat();
    let mut job = start(folder.path(), &args);
    assert!(job.has_said("3 workers over"));
    let in_the_way = run.join(".summary.json.part");
    std::fs::create_dir(&in_the_way).unwrap();
    let last = run.join(format!("checkpoints/step-{STEPS:08}"));
    assert!(job.wait("no last checkpoint", |_| last.exists()));
    // By then only the summary is left to write.
    std::thread::sleep(Duration::from_secs(1));
    let first = workers(&job.process)[0];
    send("KILL", &[first]);
    std::fs::remove_dir(&in_the_way).unwrap();
    let (status, words) = job.end();
    assert!(status.success() && words.contains("generation 2 of 2 workers"), "{words}");
    assert_eq!(result(folder.path()), expected(), "{words}");
}
