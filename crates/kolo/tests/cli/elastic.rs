//! Workers that are killed or leave: the others continue, new ones join, the weights keep their bits.

use std::path::Path;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use kolo_testing::{alive, selected, send, wait_until};

use super::program::{start, succeed, summary, workers};

/// A network whose steps take a few milliseconds, with shards that four workers share unevenly. Rank 0
/// sleeps, so that training takes time for faults but not of a processor.
pub const RUN: [&str; 13] = [
    "train", "--model", "mlp", "--shards", "6", "--steps", "250", "--batch-size", "8", "--checkpoint-epochs",
    "100", "--slow", "0:compute:2",
];

/// Steps of `RUN`.
pub const STEPS: usize = 250;

/// Returns the hash of the weights and the epoch's mean loss at the end of a run, which must have a line for
/// every step.
pub fn result(folder: &Path) -> String {
    let steps = std::fs::read_to_string(folder.join("run/steps.jsonl")).unwrap();
    let summary = summary(&folder.join("run"));
    assert_eq!(summary["steps"], steps.lines().count(), "a line for each step");
    format!("{} {}", summary["weights_sha256"], summary["train_loss"])
}

/// Runs `run` with so many workers and more options. In each generation, one signal or several strike one of
/// the living workers. Returns the result and the output.
pub fn disturbed(
    run: &[&str],
    nproc: &str,
    transport: &str,
    more: &[&str],
    signals: &[(&str, usize)],
) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let args = [run, &["--nproc", nproc, "--transport", transport, "--out", "run"], more].concat();
    let mut job = start(folder.path(), &args);
    let mut sent = 0;
    for (number, (signal, victim)) in signals.iter().enumerate() {
        let sign = match number {
            0 => format!("{nproc} workers over"),
            _ => format!("generation {} ", number + 1),
        };
        if !job.has_said(&sign) {
            break;
        }
        std::thread::sleep(Duration::from_millis(150));
        // Two generations ago someone died, so a newcomer may be there, which must have the state by now.
        if number >= 2 {
            let path = folder.path().join("run/generations.jsonl");
            let sign = format!("\"generation\":{}", number + 1);
            wait_until("its first step", || {
                std::fs::read_to_string(&path).is_ok_and(|lines| lines.contains(&sign))
            });
        }
        let living: Vec<u32> = workers(&job.process).into_iter().filter(|pid| alive(*pid)).collect();
        let Some(pid) = living.get(victim % living.len().max(1)) else { break };
        for (number, signal) in signal.split(' ').enumerate() {
            std::thread::sleep(Duration::from_millis(300 * number as u64));
            let kill = Command::new("kill").args([format!("-{signal}"), pid.to_string()]).status().unwrap();
            sent += usize::from(kill.success());
        }
    }
    let (status, words) = job.end();
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
    let cases = [
        ("shm", &[("KILL", 0), ("KILL", 1)][..]),
        ("tcp", &[("KILL", 2), ("TERM", 0)]),
        ("shm", &[("TERM", 1), ("KILL", 0)]),
        ("tcp", &[("KILL", 2), ("KILL", 0)]),
    ];
    for (transport, signals) in selected(2, cases) {
        let (end, words) = disturbed(&RUN, "4", transport, &[], signals);
        assert_eq!(end, expected(), "{transport} {signals:?}: {words}");
        // The victim of the second signal has left a group behind as well.
        assert!(words.contains("generation 2 of ") && words.contains("generation 3 of"), "{words}");
    }
}

/// Each generation tries settings, and the last one keeps some of them.
#[test]
fn deaths_while_it_is_tuned_do_not_change_the_weights() {
    for (transport, signals) in selected(1, [("tcp", &[("KILL", 0)][..]), ("shm", &[("KILL", 1)])]) {
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
#[ignore = "slow: bash .ci/slow runs it"]
fn deaths_in_step_do_not_change_the_weights() {
    let folder = tempfile::tempdir().unwrap();
    // The MLP has no normalization; fewer steps, because these take longer.
    let run = RUN.map(|word| match word {
        "mlp" => "small",
        "250" => "150",
        _ => word,
    });
    let sync = ["--batch-norm", "sync"];
    succeed(folder.path(), &[&run[..], &["--nproc", "1", "--out", "run"], &sync].concat());
    let expected = result(folder.path());
    let cases = [("shm", &[("KILL", 0), ("KILL", 1)][..]), ("tcp", &[("KILL", 2), ("TERM", 0)])];
    for (transport, signals) in selected(1, cases) {
        let (end, words) = disturbed(&run, "4", transport, &sync, signals);
        assert_eq!(end, expected, "{transport} {signals:?}: {words}");
        // The replacement may be there already.
        assert!(words.contains("generation 2 of "), "{words}");
    }
}

/// The next worker gets the islands' state that only the dead one had, as it was after an earlier round.
#[test]
fn deaths_of_islands_do_not_change_the_weights() {
    let cases = [
        (&["--sync", "diloco:H=10", "--optimizer", "adamw"][..], "tcp", &[("KILL", 2), ("TERM", 0)][..]),
        (&["--sync", "local:H=4", "--islands", "2"], "shm", &[("KILL", 0), ("KILL", 1)]),
    ];
    for (sync, transport, signals) in selected(1, cases) {
        let folder = tempfile::tempdir().unwrap();
        succeed(folder.path(), &[&RUN[..], &["--nproc", "1", "--out", "run"], sync].concat());
        let expected = result(folder.path());
        let (end, words) =
            disturbed(&RUN, "4", transport, &[sync, &["--backup-steps", "20"]].concat(), signals);
        assert_eq!(end, expected, "{sync:?} {transport} {signals:?}: {words}");
        assert!(words.contains("generation 2 of "), "{words}");
    }
}

/// Rank 0 dies while the folder is away: the missing lines are written when it is back.
#[test]
fn a_folder_that_is_away_at_a_death_is_mended_later() {
    let folder = tempfile::tempdir().unwrap();
    let (run, away) = (folder.path().join("run"), folder.path().join("away"));
    let args = [&RUN[..], &["--nproc", "3", "--max-restarts", "0", "--out", "run"]].concat();
    let mut job = start(folder.path(), &args);
    assert!(job.has_said("3 workers over"));
    std::fs::rename(&run, &away).unwrap();
    send("KILL", &workers(&job.process)[..1]);
    assert!(job.has_said("the run folder is gone"));
    std::fs::rename(&away, &run).unwrap();
    let (status, words) = job.end();
    assert!(status.success() && words.contains("generation 2 of 2 workers"), "{words}");
    assert_eq!(result(folder.path()), expected(), "{words}");
}

/// The second generation is the first worker alone. The third has a new worker too, which is alone in the
/// fourth.
#[test]
fn who_came_in_the_middle_of_an_epoch_knows_all_of_it() {
    let (end, words) = disturbed(&RUN, "2", "shm", &[], &[("KILL", 1), ("CONT", 0), ("KILL", 0)]);
    assert_eq!(end, expected(), "{words}");
    assert!(words.contains("generation 4 of 1 worker"), "{words}");
}

/// A run resumes from its checkpoint, and a worker is killed as soon as it is seen to read it.
#[test]
fn a_death_while_a_checkpoint_is_read_does_not_end_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["train", "--model", "mlp", "--shards", "2", "--batch-size", "8"];
    let steps = ["--steps", "400", "--checkpoint-steps", "200", "--out", "run"];
    succeed(folder.path(), &[&args[..], &steps].concat());
    let run = folder.path().join("run");
    let expected = summary(&run)["weights_sha256"].clone();
    let reads = |worker: u32| {
        let open = std::fs::read_dir(format!("/proc/{worker}/fd")).into_iter().flatten().flatten();
        let mut files = open.filter_map(|file| std::fs::read_link(file.path()).ok());
        // All workers look at the other files before they meet.
        files.any(|file| file.extension().is_some_and(|extension| extension == "safetensors"))
    };

    let until = Instant::now() + Duration::from_secs(60);
    // On a busy machine a checkpoint can be read between two looks; then the next job reads it.
    let (victim, mut job) = loop {
        std::fs::remove_file(run.join("summary.json")).unwrap();
        std::fs::remove_dir_all(run.join("checkpoints/step-00000400")).unwrap();
        let mut job = start(folder.path(), &["train", "--resume", "run", "--max-restarts", "0"]);
        let victim = loop {
            assert!(Instant::now() < until, "no worker reads the checkpoint");
            // The launcher's children: the first worker is started first.
            if let Some(worker) = workers(&job.process).into_iter().rev().find(|worker| reads(*worker)) {
                break Some(worker);
            }
            if run.join("summary.json").exists() {
                break None;
            }
        };
        match victim {
            Some(victim) => break (victim, job),
            None => drop(job.end()),
        }
    };
    send("KILL", &[victim]);
    let (status, words) = job.end();
    assert!(status.success() && words.contains("generation 2 of 1 worker"), "{words}");
    assert_eq!(summary(&run)["weights_sha256"], expected, "{words}");
}

#[test]
fn a_stopped_worker_is_replaced_unless_it_is_continued() {
    let cases = [
        ("shm", "STOP", true),
        ("tcp", "STOP CONT", false),
        ("tcp", "STOP", true),
        ("shm", "STOP CONT", false),
    ];
    for (transport, signals, ended) in selected(2, cases) {
        let (end, words) = disturbed(&RUN, "4", transport, &[], &[(signals, 1)]);
        assert_eq!(end, expected(), "{transport} {signals}: {words}");
        assert_eq!(words.contains("has stood still for 5 s; Kolo ends it"), ended, "{words}");
        assert_eq!(words.contains("generation 2 of 3 workers"), ended, "{words}");
    }
}

/// Everybody who has the job's state is stopped, but a replacement, which has none of it yet, runs.
#[test]
fn a_job_whose_members_are_all_stopped_waits_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut job = start(folder.path(), &[&RUN[..], &["--nproc", "3", "--out", "run"]].concat());
    assert!(job.has_said("3 workers over"));
    let members = workers(&job.process);
    send("KILL", &members[1..2]);
    let is_replaced = || workers(&job.process).iter().any(|worker| !members.contains(worker));
    wait_until("no replacement", is_replaced);
    let left = [members[0], members[2]];
    send("STOP", &left);
    // Longer than a member may be stopped while others run.
    std::thread::sleep(Duration::from_secs(8));
    send("CONT", &left);
    let (status, words) = job.end();
    assert!(status.success() && !words.contains("has been stopped for"), "{words}");
    assert_eq!(result(folder.path()), expected(), "{words}");
}

/// The others end before a replacement that is stopped has joined them.
#[test]
fn a_finished_job_does_not_wait_for_a_stopped_replacement() {
    let folder = tempfile::tempdir().unwrap();
    let mut job = start(folder.path(), &[&RUN[..], &["--nproc", "2", "--out", "run"]].concat());
    assert!(job.has_said("2 workers over"));
    let members = workers(&job.process);
    send("KILL", &members[1..]);
    // One that has begun: the launcher waits for a process that it has just made to start its program.
    let has_begun = |pid: u32| {
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|all| all.split(|byte| *byte == 0).any(|variable| variable.starts_with(b"RANK=")))
    };
    let newcomer =
        || workers(&job.process).into_iter().find(|worker| !members.contains(worker) && has_begun(*worker));
    wait_until("no replacement", || newcomer().is_some());
    send("STOP", newcomer().as_slice());
    let (status, words) = job.end();
    assert!(status.success() && words.contains("has stood still for 5 s; Kolo ends it"), "{words}");
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
    // Slow, so that it does not end before the last death.
    let args = ["--nproc", "2", "--max-restarts", "5", "--slow", "0:compute:20", "--out", "run"];
    let mut job = start(folder.path(), &[&RUN[..], &args].concat());
    assert!(job.has_said("2 workers over"));
    let before = kept(&job.process);
    for death in 1..=4 {
        send("KILL", &[*workers(&job.process).iter().rfind(|pid| alive(**pid)).unwrap()]);
        assert!(job.wait("no new group", |said| said.matches(" of 2 workers: ").count() >= death));
    }
    assert_eq!(kept(&job.process), before, "children, and processes that are watched");
}

/// The optimizer's state is divided, and each part has two owners: one is killed, and another leaves.
#[test]
fn divided_state_survives_its_workers() {
    let more = ["--shard", "optimizer", "--redundancy", "2"];
    let (end, words) = disturbed(&RUN, "4", "shm", &more, &[("KILL", 1), ("TERM", 0)]);
    assert_eq!(end, expected(), "{words}");
    assert!(words.contains("generation 3 "), "{words}");
}

/// All workers have one copy of the state: two are killed one after the other, and a third leaves.
#[test]
fn one_copy_of_the_state_survives_its_workers() {
    let (end, words) =
        disturbed(&RUN, "4", "shm", &["--shard", "host"], &[("KILL", 1), ("KILL", 2), ("TERM", 0)]);
    assert_eq!(end, expected(), "{words}");
}

/// Both owners of a part are killed at once: the job ends with the cause, and starts nobody in their place.
#[test]
fn the_death_of_all_owners_of_a_part_is_the_last_word() {
    let divided = ["--nproc", "4", "--shard", "optimizer", "--redundancy", "2", "--slow", "0:compute:20"];
    for (more, advice) in [
        (&[][..], "there is no checkpoint, so the run can only begin anew; --checkpoint-steps writes some"),
        (&["--checkpoint-steps", "5"], "`kolo train --resume run` continues after step "),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut job = start(folder.path(), &[&RUN[..], &divided, more, &["--out", "run"]].concat());
        let steps = || std::fs::read_to_string(folder.path().join("run/steps.jsonl")).unwrap_or_default();
        assert!(job.wait("no steps", |_| steps().lines().count() > 12));
        send("KILL", &workers(&job.process)[1..3]);
        let (status, words) = job.end();
        assert_eq!(status.code(), Some(137), "{words}");
        let error = words.split("error: ").last().unwrap();
        assert!(error.starts_with("rank") && error.contains("only ranks 1, 2 held "), "{words}");
        assert!(error.contains("\n  died before: rank 1 (pid "), "{words}");
        assert!(error.contains(advice), "{words}");
        assert!(!words.contains("(node0/1.1)") && !words.contains("(node0/2.1)"), "{words}");
    }
}
