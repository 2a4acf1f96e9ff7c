//! Workers that are killed or leave: the others continue, new ones join, the weights keep their bits.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::program::{alive, kolo, noise_images, stderr, succeed, summary, workers};

/// Four epochs of a network whose steps take a few milliseconds.
pub const RUN: [&str; 11] = [
    "train",
    "--model",
    "mlp",
    "--shards",
    "8",
    "--steps",
    "500",
    "--batch-size",
    "8",
    "--checkpoint-epochs",
    "100",
];

/// Steps of `RUN`.
pub const STEPS: usize = 500;

/// Returns the hash of the weights and the epoch's mean loss at the end of a run, which must have a line for
/// every step.
pub fn result(folder: &Path) -> String {
    let steps = std::fs::read_to_string(folder.join("run/steps.jsonl")).unwrap();
    assert_eq!(steps.lines().count(), STEPS, "a line for each step");
    let summary = summary(&folder.join("run"));
    format!("{} {}", summary["weights_sha256"], summary["train_loss"])
}

/// Waits until the job's output contains `what`; returns false if the job ends first.
pub fn has_said(job: &mut Child, words: &Path, what: &str) -> bool {
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        if std::fs::read_to_string(words).unwrap().contains(what) {
            return true;
        }
        if job.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the job has not said `{what}`: {}", std::fs::read_to_string(words).unwrap());
}

/// Runs `run` with so many workers and more options. In each generation, one signal or several strike one of the living
/// workers. Returns the result and the output.
pub fn disturbed(
    run: &[&str],
    nproc: &str,
    transport: &str,
    more: &[&str],
    signals: &[(&str, usize)],
) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let words = folder.path().join("words");
    let args = [run, &["--nproc", nproc, "--transport", transport, "--out", "run"], more].concat();
    let file = std::fs::File::create(&words).unwrap();
    let mut job = kolo(folder.path(), &args).stdout(Stdio::null()).stderr(file).spawn().unwrap();
    let mut sent = 0;
    for (number, (signal, victim)) in signals.iter().enumerate() {
        let sign = match number {
            0 => format!("{nproc} workers over"),
            _ => format!("generation {} ", number + 1),
        };
        if !has_said(&mut job, &words, &sign) {
            break;
        }
        std::thread::sleep(Duration::from_millis(150));
        let living: Vec<u32> = workers(&job).into_iter().filter(|pid| alive(*pid)).collect();
        let Some(pid) = living.get(victim % living.len().max(1)) else { break };
        for (number, signal) in signal.split(' ').enumerate() {
            std::thread::sleep(Duration::from_millis(300 * number as u64));
            let kill = Command::new("kill").args([format!("-{signal}"), pid.to_string()]).status().unwrap();
            sent += usize::from(kill.success());
        }
    }
    let status = job.wait().unwrap();
    let words = std::fs::read_to_string(words).unwrap();
    assert!(status.success(), "{words}");
    let wanted = signals.iter().flat_map(|(signals, _)| signals.split(' ')).count();
    assert_eq!(sent, wanted, "the job ended before all of it had happened: {words}");
    let checkpoints = std::fs::read_dir(folder.path().join("run/checkpoints")).unwrap().count();
    assert_eq!(checkpoints, 1, "nobody but the last ones writes a checkpoint: {words}");
    (result(folder.path()), words)
}

/// Returns the result of the undisturbed run.
pub fn expected() -> &'static str {
    static EXPECTED: OnceLock<String> = OnceLock::new();
    EXPECTED.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        succeed(folder.path(), &[&RUN[..], &["--nproc", "1", "--out", "run"]].concat());
        result(folder.path())
    })
}

#[test]
fn deaths_do_not_change_the_weights() {
    for (transport, signals) in [
        ("shm", &[("KILL", 0), ("KILL", 1)][..]),
        ("tcp", &[("KILL", 2), ("KILL", 0)]),
        ("shm", &[("TERM", 1), ("KILL", 0)]),
    ] {
        let (end, words) = disturbed(&RUN, "4", transport, &[], signals);
        assert_eq!(end, expected(), "{transport} {signals:?}: {words}");
        // The victim of the second signal has left a group behind as well.
        assert!(words.contains("generation 2 of 3 workers") && words.contains("generation 3 of"), "{words}");
    }
}

/// Each generation tries settings, and the last one keeps some of them.
#[test]
fn deaths_while_it_is_tuned_do_not_change_the_weights() {
    for (transport, signals) in [("shm", &[("KILL", 1)][..]), ("tcp", &[("KILL", 0)])] {
        let (end, words) = disturbed(&RUN, "3", transport, &["--tune"], signals);
        assert_eq!(end, expected(), "{transport} {signals:?}: {words}");
        assert!(
            words.contains("generation 2 of 2 workers") || words.contains("generation 2 of 3"),
            "{words}"
        );
        assert!(words.contains("tuned in "), "{words}");
    }
}

/// All shards go through a step together, so the others wait for the dead one in the middle of their passes.
#[test]
fn deaths_in_step_do_not_change_the_weights() {
    let folder = tempfile::tempdir().unwrap();
    let run = RUN.map(|word| if word == "mlp" { "small" } else { word });
    let sync = ["--batch-norm", "sync"];
    succeed(folder.path(), &[&run[..], &["--nproc", "1", "--out", "run"], &sync].concat());
    let expected = result(folder.path());
    for (transport, signals) in
        [("shm", &[("KILL", 0), ("KILL", 1)][..]), ("tcp", &[("KILL", 2), ("TERM", 0)])]
    {
        let (end, words) = disturbed(&run, "4", transport, &sync, signals);
        assert_eq!(end, expected, "{transport} {signals:?}: {words}");
        assert!(words.contains("generation 2 of 3 workers"), "{words}");
    }
}

/// The next worker gets the islands' state that only the dead one had, as it was after an earlier round.
#[test]
fn deaths_of_islands_do_not_change_the_weights() {
    for (sync, transport, signals) in [
        (&["--sync", "local:H=4", "--islands", "2"][..], "shm", &[("KILL", 0), ("KILL", 1)][..]),
        (&["--sync", "diloco:H=10", "--optimizer", "adamw"], "tcp", &[("KILL", 2), ("TERM", 0)]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        succeed(folder.path(), &[&RUN[..], &["--nproc", "1", "--out", "run"], sync].concat());
        let expected = result(folder.path());
        let (end, words) =
            disturbed(&RUN, "4", transport, &[sync, &["--backup-steps", "20"]].concat(), signals);
        assert_eq!(end, expected, "{sync:?} {transport} {signals:?}: {words}");
        assert!(words.contains("generation 2 of 3 workers"), "{words}");
    }
}

/// Rank 0 dies while the folder is away: the missing lines are written when it is back.
#[test]
fn a_folder_that_is_away_at_a_death_is_mended_later() {
    let folder = tempfile::tempdir().unwrap();
    let (run, away) = (folder.path().join("run"), folder.path().join("away"));
    let words = folder.path().join("words");
    let args = [&RUN[..], &["--nproc", "3", "--max-restarts", "0", "--out", "run"]].concat();
    let file = std::fs::File::create(&words).unwrap();
    let mut job = kolo(folder.path(), &args).stdout(Stdio::null()).stderr(file).spawn().unwrap();
    assert!(has_said(&mut job, &words, "3 workers over"));
    std::fs::rename(&run, &away).unwrap();
    let kill = Command::new("kill").args(["-9".into(), workers(&job)[0].to_string()]).status().unwrap();
    assert!(kill.success() && has_said(&mut job, &words, "the run folder is gone"));
    std::fs::rename(&away, &run).unwrap();
    let status = job.wait().unwrap();
    let words = std::fs::read_to_string(words).unwrap();
    assert!(status.success() && words.contains("generation 2 of 2 workers"), "{words}");
    assert_eq!(result(folder.path()), expected(), "{words}");
}

/// The second generation is the first worker alone. The third has a new worker too, which is alone in the
/// fourth.
#[test]
fn who_came_in_the_middle_of_an_epoch_knows_all_of_it() {
    let (end, words) = disturbed(&RUN, "2", "shm", &[], &[("KILL", 1), ("CONT", 0), ("KILL", 0)]);
    assert_eq!(end, expected(), "{words}");
    assert!(words.contains("generation 4 of 1 workers"), "{words}");
}

/// A run resumes from its checkpoint. A checkpoint that cannot be read yet keeps its workers waiting until
/// one of them is killed.
#[test]
fn a_death_while_a_checkpoint_is_read_does_not_end_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 64);
    let args = ["train", "--data", &data, "--shards", "2", "--batch-size", "4", "--steps", "6"];
    succeed(folder.path(), &[&args[..], &["--checkpoint-steps", "2", "--out", "run"]].concat());
    let run = folder.path().join("run");
    let expected = summary(&run)["weights_sha256"].clone();
    std::fs::remove_file(run.join("summary.json")).unwrap();
    std::fs::remove_dir_all(run.join("checkpoints/step-00000006")).unwrap();
    let newest = run.join("checkpoints/step-00000099");
    std::fs::create_dir(&newest).unwrap();
    let manifest = newest.join("manifest.json");
    assert!(Command::new("mkfifo").arg(&manifest).status().unwrap().success());

    let job = kolo(folder.path(), &["train", "--resume", "run", "--max-restarts", "0"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The launcher reads first. Opening waits for a reader.
    drop(std::fs::OpenOptions::new().write(true).open(&manifest).unwrap());
    let until = Instant::now() + Duration::from_secs(60);
    while workers(&job).len() < 2 {
        assert!(Instant::now() < until, "two workers within a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
    let open = std::fs::OpenOptions::new().write(true).open(&manifest).unwrap();
    let kill = Command::new("kill").args(["-9".into(), workers(&job)[1].to_string()]).status().unwrap();
    assert!(kill.success());
    std::fs::remove_file(&manifest).unwrap();
    drop(open);
    let output = job.wait_with_output().unwrap();
    let words = stderr(&output);
    assert!(output.status.success() && words.contains("generation 2 of 1 workers"), "{words}");
    assert_eq!(summary(&run)["weights_sha256"], expected, "{words}");
}

#[test]
fn a_stopped_worker_is_replaced_unless_it_is_continued() {
    for (transport, signals, ended) in [
        ("shm", "STOP", true),
        ("tcp", "STOP", true),
        ("shm", "STOP CONT", false),
        ("tcp", "STOP CONT", false),
    ] {
        let (end, words) = disturbed(&RUN, "4", transport, &[], &[(signals, 1)]);
        assert_eq!(end, expected(), "{transport} {signals}: {words}");
        assert_eq!(words.contains("has been stopped for 5 s and is ended"), ended, "{words}");
        assert_eq!(words.contains("generation 2 of 3 workers"), ended, "{words}");
    }
}

/// Everybody who has the job's state is stopped, but a replacement, which has none of it yet, runs.
#[test]
fn a_job_whose_members_are_all_stopped_waits_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let words = folder.path().join("words");
    let args = [&RUN[..], &["--nproc", "3", "--out", "run"]].concat();
    let file = std::fs::File::create(&words).unwrap();
    let mut job = kolo(folder.path(), &args).stdout(Stdio::null()).stderr(file).spawn().unwrap();
    assert!(has_said(&mut job, &words, "3 workers over"));
    let signal = |signal: &str, worker: u32| {
        assert!(Command::new("kill").args([signal.into(), worker.to_string()]).status().unwrap().success());
    };
    let members = workers(&job);
    signal("-9", members[1]);
    let until = Instant::now() + Duration::from_secs(60);
    while workers(&job).iter().all(|worker| members.contains(worker)) {
        assert!(Instant::now() < until, "a replacement within a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
    let left = [members[0], members[2]];
    left.iter().for_each(|worker| signal("-STOP", *worker));
    // Longer than a member may be stopped while others run.
    std::thread::sleep(Duration::from_secs(8));
    left.iter().for_each(|worker| signal("-CONT", *worker));
    let status = job.wait().unwrap();
    let words = std::fs::read_to_string(words).unwrap();
    assert!(status.success() && !words.contains("has been stopped for"), "{words}");
    assert_eq!(result(folder.path()), expected(), "{words}");
}

/// The others end before a replacement that is stopped has joined them.
#[test]
fn a_finished_job_does_not_wait_for_a_stopped_replacement() {
    let folder = tempfile::tempdir().unwrap();
    let words = folder.path().join("words");
    let args = [&RUN[..], &["--nproc", "2", "--out", "run"]].concat();
    let file = std::fs::File::create(&words).unwrap();
    let mut job = kolo(folder.path(), &args).stdout(Stdio::null()).stderr(file).spawn().unwrap();
    assert!(has_said(&mut job, &words, "2 workers over"));
    let signal = |signal: &str, worker: u32| {
        assert!(Command::new("kill").args([signal.into(), worker.to_string()]).status().unwrap().success());
    };
    let members = workers(&job);
    signal("-9", members[1]);
    let mut newcomer = None;
    super::program::wait_until("no replacement", || {
        newcomer = workers(&job).into_iter().find(|worker| !members.contains(worker));
        newcomer.is_some()
    });
    signal("-STOP", newcomer.unwrap());
    super::program::wait_until("the job waits for the stopped worker", || job.try_wait().unwrap().is_some());
    let status = job.wait().unwrap();
    let words = std::fs::read_to_string(words).unwrap();
    assert!(status.success() && words.contains("has been stopped for 5 s and is ended"), "{words}");
    assert_eq!(result(folder.path()), expected(), "{words}");
}

/// Returns how many children the launcher has, dead ones included, and how many processes it watches.
fn kept(launcher: &Child) -> (usize, usize) {
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", launcher.id())).unwrap().flatten();
    let links = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let watches = |link: &std::path::PathBuf| link.to_string_lossy().contains("pidfd");
    (kolo_testing::children(launcher.id()).len(), links.filter(watches).count())
}

#[test]
fn a_launcher_keeps_nothing_of_the_dead() {
    let folder = tempfile::tempdir().unwrap();
    let words = folder.path().join("words");
    // Slow, so that it does not end before the last death.
    let args = ["--nproc", "2", "--max-restarts", "5", "--slow", "0:compute:20", "--out", "run"];
    let file = std::fs::File::create(&words).unwrap();
    let mut job =
        kolo(folder.path(), &[&RUN[..], &args].concat()).stdout(Stdio::null()).stderr(file).spawn().unwrap();
    assert!(has_said(&mut job, &words, "2 workers over"));
    let before = kept(&job);
    for death in 1..=4 {
        let last = *workers(&job).iter().rfind(|pid| alive(**pid)).unwrap();
        assert!(Command::new("kill").args(["-9".into(), last.to_string()]).status().unwrap().success());
        let said = || std::fs::read_to_string(&words).unwrap();
        let until = Instant::now() + Duration::from_secs(300);
        while said().matches(" of 2 workers: ").count() < death {
            let ended = job.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < until, "{ended:?}: {}", said());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let after = kept(&job);
    job.kill().unwrap();
    job.wait().unwrap();
    assert_eq!(after, before, "children, and processes that are watched");
}
