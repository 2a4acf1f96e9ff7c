//! Tests of an elastic job after a death: output and culprits carry the ranks that workers have then.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kolo_comm::{JobMembership, Op};
use kolo_elastic::Member;
use kolo_testing::wait_until;
use rustix::process::Signal;
use signal_hook::consts::SIGTERM;

use crate::harness::{Running, Trial, alive, kill};

/// Variable that makes the test program a worker here.
const MEMBER: &str = "KOLO_TEST_ELASTIC";

/// Runs a worker of the tests below: it works until another one has been replaced, and prints its rank in
/// each generation. With `blame`, the last rank then stands still, and the first one fails because of it.
/// With `input`, rank 1 reports wrong input in the first generation, and so does each other one in the next.
/// With `wait`, the workers wait for the note `go` instead. With `stay`, no worker is replaced, and the last
/// rank stands still at the end. With `late`, the replacement never arrives, and fails at the end. With
/// `leave`, the others wait for the note `go` before they form a group with the replacement, which arrives
/// when they are two, and they leave when SIGTERM has asked them to. With `asked`, they leave when SIGTERM
/// has asked them to, which they wait for after a death. With `orphan`, the three workers fail one after
/// another, each when those before it have been replaced. With `hang`, the last rank stands still in the
/// first generation.
pub fn work_if_asked() {
    let Ok(task) = std::env::var(MEMBER) else { return };
    let folder = std::env::var("DIR").unwrap();
    if task == "late" && std::fs::exists(format!("{folder}/pid.0")).unwrap() {
        std::fs::write(format!("{folder}/late"), std::process::id().to_string()).unwrap();
        wait_until("the others have ended", || std::fs::exists(format!("{folder}/ended")).unwrap());
        std::process::exit(3);
    }
    let asked_to_end = Arc::new(AtomicBool::new(false));
    if task == "leave" && std::fs::exists(format!("{folder}/pid.0")).unwrap() {
        wait_until("the others are two", || std::fs::exists(format!("{folder}/two")).unwrap());
        std::fs::write(format!("{folder}/newcomer"), std::process::id().to_string()).unwrap();
    } else if ["leave", "asked"].contains(&task.as_str()) {
        signal_hook::flag::register(SIGTERM, asked_to_end.clone()).unwrap();
    }
    let is_orphan = task == "orphan" && std::fs::exists(format!("{folder}/pid.0")).unwrap();
    if is_orphan {
        std::fs::write(format!("{folder}/orphan.{}", std::process::id()), "").unwrap();
    }
    let mut member = Member::from_env().unwrap().unwrap();
    // Training does this first, too.
    if let Err(error) = member.job_id() {
        eprintln!("Error: {error}");
        std::process::exit(1);
    }
    let mut group = match member.next_group(None) {
        Err(error) if task == "hang" => {
            let kind = Some(kolo_launch::FailureKind::StateLost);
            kolo_launch::report_failure_of_kind(&error, None, kind).unwrap();
            std::process::exit(1);
        }
        Err(error) if is_orphan => {
            // The launcher looks at another one's end before this one's.
            std::thread::sleep(std::time::Duration::from_secs(1));
            eprintln!("Error: {error}");
            std::process::exit(1);
        }
        group => group.unwrap(),
    };
    if ["orphan", "hang"].contains(&task.as_str()) {
        member.set_has_state();
    }
    std::fs::write(format!("{folder}/pid.{}", group.rank().0), std::process::id().to_string()).unwrap();
    loop {
        let generation = member.generation().unwrap().number;
        let is_last = generation > 1 && group.world_size() == 3;
        println!("\n@{} in generation {generation}", group.rank());
        match task.as_str() {
            "orphan" => {
                let before = 2 - group.rank().0;
                wait_until("those before have been replaced", || orphans(&folder) >= before);
                // They arrive meanwhile.
                std::thread::sleep(std::time::Duration::from_millis(300));
                std::process::exit(1);
            }
            "leave" if asked_to_end.load(Ordering::SeqCst) => return,
            "asked" if generation > 1 => return,
            "leave" if generation == 2 => std::fs::write(format!("{folder}/two"), "").unwrap(),
            "leave" | "asked" => {}
            "stay" | "hang" if group.rank().0 == 2 && generation == 1 => std::thread::park(),
            "stay" => return,
            "late" if generation > 1 => {
                wait_until("the late one is there", || std::fs::exists(format!("{folder}/late")).unwrap());
                return;
            }
            "input" if group.rank().0 == 1 || generation > 1 => refuse_input(),
            "blame" if is_last => blame(group.rank().0),
            _ if is_last => return,
            _ => {}
        }
        let reason = loop {
            // All ranks see the file in the same round, or learn of it from a rank that does.
            let mut go =
                [f32::from(u8::from(task == "wait" && std::fs::exists(format!("{folder}/go")).unwrap()))];
            if group.all_reduce(&mut go, Op::Sum).is_ok() && go[0] > 0.0 {
                return;
            }
            let is_wanted = member.is_change_wanted() || asked_to_end.load(Ordering::SeqCst);
            let mut wanted = [f32::from(u8::from(is_wanted))];
            match group.all_reduce(&mut wanted, Op::Sum) {
                Ok(()) if wanted[0] > 0.0 => {
                    std::fs::write(format!("{folder}/wanted"), "").unwrap();
                    let is_free = || task != "leave" || std::fs::exists(format!("{folder}/go")).unwrap();
                    wait_until("the group may form", is_free);
                    break "others come".to_string();
                }
                Ok(()) => std::thread::sleep(std::time::Duration::from_millis(5)),
                Err(error) => break error.to_string(),
            }
        };
        if task == "asked" {
            std::fs::write(format!("{folder}/broken.{}", group.rank().0), "").unwrap();
            wait_until("it is asked to end", || asked_to_end.load(Ordering::SeqCst));
            // The launcher knows why the job ends by then.
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
        group = member.next_group(Some(&reason)).unwrap();
    }
}

/// Number of replacements that have been started.
fn orphans(folder: &str) -> usize {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with("orphan.")).count()
}

/// Ends a worker as `kolo::main` does after wrong input.
fn refuse_input() -> ! {
    let kind = Some(kolo_launch::FailureKind::WrongInput);
    kolo_launch::report_failure_of_kind(&"a.png: this is no image", None, kind).unwrap();
    std::process::exit(2);
}

/// Makes rank 2 stand still, and the others blame it.
fn blame(rank: usize) -> ! {
    if rank == 2 {
        std::thread::park();
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    eprintln!("Error: Timeout {{ rank: Rank(2), during: \"all-reduce\", waited: 1s }}");
    std::process::exit(1);
}

const ROLE: [&str; 4] = ["--exact", "role_elastic", "--nocapture", "--test-threads=1"];

fn start(task: &str) -> Running {
    let program = std::env::current_exe().unwrap();
    trial(task, program.to_str().unwrap()).start()
}

/// Creates a job of three workers with this task, run by a copy of this test program.
pub fn trial(task: &str, program: &str) -> Trial {
    let command = [&[program][..], &ROLE].concat();
    let trial = Trial::of(3, &command).after(&format!("export {MEMBER}={task}"));
    // One worker is replaced; if the next one is missing, the job ends.
    let min = if task == "blame" { 3 } else { 1 };
    let restarts = *HashMap::from([("orphan", 9), ("asked", 0)]).get(task).unwrap_or(&1);
    trial.set("min", min).set("restarts", restarts)
}

#[test]
fn lines_carry_the_rank_that_their_worker_has_now() {
    let running = start("finish");
    let pids = running.pids(3);
    kill(pids[0], Signal::KILL);
    let ended = running.ends_with(0);
    let outputs: Vec<(&str, &str)> = ended.out.lines().filter_map(|line| line.split_once("] @")).collect();
    // On a busy machine, the replacement may arrive before the others have regrouped.
    assert!(outputs.len() >= 3 + 3, "{}", ended.out);
    for (prefix, text) in &outputs {
        let (rank, _) = text.split_once(" in ").unwrap();
        assert_eq!(prefix.strip_prefix('['), Some(rank), "{}", ended.out);
    }
    // The worker in the dead one's place is not rank 0.
    let reason =
        ended.err.split("kolo: generation 2 of ").nth(1).and_then(|line| line.split_once(" workers: "));
    assert!(reason.is_some_and(|(_, reason)| reason.starts_with("rank 0 (node0/0.0)")), "{}", ended.err);
    ended.left_nothing(&pids);
}

#[test]
fn a_culprit_is_named_by_its_rank_of_now() {
    let running = start("blame");
    let pids = running.pids(3);
    kill(pids[0], Signal::KILL);
    let ended = running.ends_with(1);
    // Rank 2 is the replacement, whose process is none of the first three.
    let error = ended.error();
    assert!(error.starts_with("rank 2 (pid ") && error.contains("is blamed by rank "), "{}", ended.err);
    assert!(pids.iter().all(|pid| !error.starts_with(&format!("rank 2 (pid {pid})"))), "{}", ended.err);
    ended.left_nothing(&pids);
}

#[test]
fn wrong_input_ends_the_job_with_one_sentence() {
    let running = start("input");
    let pids = running.pids(3);
    let ended = running.ends_with(2);
    assert_eq!(ended.err.matches("this is no image").count(), 1, "{}", ended.err);
    assert!(ended.error().starts_with("rank") && ended.error().contains("code 2"), "{}", ended.err);
    // Nobody is started in its place.
    assert!(!ended.err.contains("of 3 workers"), "{}", ended.err);
    ended.left_nothing(&pids);
}

/// The program's error does not say so; the launcher knows it by itself.
#[test]
fn nobody_is_started_when_all_that_had_the_jobs_state_have_died() {
    let running = start("orphan");
    let pids = running.pids(3);
    let ended = running.ends_with(1);
    let lost = ended.err.matches("] Error: all workers that had the job's state have died").count();
    assert_eq!(lost, 2, "the replacements of the first two: {}", ended.err);
    ended.left_nothing(&pids);
}

/// The job's result has been written by then.
#[test]
fn who_is_killed_when_rank_0_has_ended_well_is_survived() {
    let running = start("stay");
    let pids = running.pids(3);
    for pid in &pids[..2] {
        wait_until("rank 0 and rank 1 end", || !alive(*pid));
    }
    // The launcher has noticed the exits by then, or notices all at once.
    kill(pids[2], Signal::KILL);
    let ended = running.ends_with(0);
    assert!(
        ended.err.contains("rank 2 (node0/2.0) was killed by SIGKILL when the work was done"),
        "{}",
        ended.err
    );
    ended.left_nothing(&pids);
}

#[test]
fn who_was_to_replace_another_is_not_missed_when_the_work_is_done() {
    let running = start("late");
    let pids = running.pids(3);
    kill(pids[2], Signal::KILL);
    let late = running.noted_pid("late");
    for pid in &pids[..2] {
        wait_until("rank 0 and rank 1 end", || !alive(*pid));
    }
    running.note("ended");
    let ended = running.ends_with(0);
    // On a busy machine the launcher may notice its end before those of the others.
    assert!(ended.err.contains("worker node0/2.1 exited with code 3"), "{}", ended.err);
    ended.left_nothing(&[&pids[..], &[late]].concat());
}

/// A newcomer dies of the signal that asks all to end, while the others form a group with it. They learn of
/// it, and end in good order.
#[test]
fn an_end_does_not_wait_for_a_newcomer_that_the_signal_has_ended() {
    let running = start("leave");
    let pids = running.pids(3);
    kill(pids[2], Signal::KILL);
    running.noted("wanted");
    let newcomer = running.noted_pid("newcomer");
    // It has arrived, and cannot join the group.
    kill(newcomer, Signal::STOP);
    running.note("go");
    running.wait_for_output("generation 3 of 3 workers");
    running.signal(Signal::TERM);
    let ended = running.ends_with(143);
    assert!(ended.err.contains("generation 4 of 2 workers: rank 2 (node0/2.1) "), "{}", ended.err);
    assert!(!ended.err.contains("Kolo kills"), "{}", ended.err);
    ended.left_nothing(&[&pids[..], &[newcomer]].concat());
}

/// No worker has reported that it holds state. Each forms one more generation, in which it finds that it is
/// asked to end.
#[test]
fn an_end_in_the_first_generation_waits_for_nobody() {
    for dies in [true, false] {
        let running = start("asked");
        let pids = running.pids(3);
        if dies {
            kill(pids[2], Signal::KILL);
            running.noted("broken.0");
            running.noted("broken.1");
        }
        running.signal(Signal::TERM);
        let ended = running.end();
        assert_eq!(ended.code, 143, "{}", ended.err);
        assert!(ended.err.contains(if dies { "of 2 workers" } else { "of 3 workers" }), "{}", ended.err);
        assert!(!ended.err.contains("Kolo kills"), "{}", ended.err);
        ended.left_nothing(&pids);
    }
}

#[test]
fn a_program_that_is_not_elastic_is_started_again_as_a_whole() {
    let script = r#"
echo "count $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS"
note "here.$RANK.$TORCHELASTIC_RESTART_COUNT" ""
wait_for "here.0.$TORCHELASTIC_RESTART_COUNT"; wait_for "here.1.$TORCHELASTIC_RESTART_COUNT"
[ $RANK = 0 ] || [ $TORCHELASTIC_RESTART_COUNT = 2 ] || exit 3
[ $TORCHELASTIC_RESTART_COUNT = 2 ] || sleep 60
"#;
    let trial = |restarts: usize| Trial::new(2, script).set("restarts", 0).set("group_restarts", restarts);
    let ended = trial(2).ends_with(0);
    let counts = |count: usize| ended.out.matches(&format!("count {count} of 2")).count();
    assert_eq!([0, 1, 2, 3].map(counts), [2, 2, 2, 0], "{}", ended.out);
    assert!(ended.err.contains("rank 1 (pid ") && ended.err.contains("(restart 2 of 2)"), "{}", ended.err);
    ended.left_nothing(&[]);
    trial(1).ends_with(3);
    let ended = trial(0).run();
    assert!(ended.code == 3 && !ended.err.contains("starts all workers again"), "{}", ended.err);
}

/// The file is rebuilt or removed: a replacement runs the same program as the others.
#[test]
fn a_replacement_runs_the_program_that_the_job_began_with() {
    for replaced in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let (program, other) = (folder.path().join("program"), folder.path().join("other"));
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        std::fs::copy("/bin/false", &other).unwrap();
        let running = trial("finish", program.to_str().unwrap()).start();
        let pids = running.pids(3);
        match replaced {
            true => std::fs::rename(&other, &program).unwrap(),
            false => std::fs::remove_file(&program).unwrap(),
        }
        kill(pids[1], Signal::KILL);
        let ended = running.ends_with(0);
        assert!(ended.out.contains("] @rank 2 in generation"), "{}", ended.out);
        ended.left_nothing(&pids);
    }
}

/// The script is missing: its interpreter would open it by name.
#[test]
fn a_replacement_that_cannot_be_started_ends_no_job() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    let program = std::env::current_exe().unwrap();
    std::fs::write(&script, format!("#!/bin/sh\nexec '{}' \"$@\"\n", program.display())).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let running = trial("wait", script.to_str().unwrap()).start();
    let pids = running.pids(3);
    std::fs::remove_file(&script).unwrap();
    kill(pids[1], Signal::KILL);
    running.wait_for_output("Kolo could not replace a dead worker: cannot start");
    running.note("go");
    let ended = running.ends_with(0);
    assert!(ended.err.contains("script`: there is no such file; the job continues without"), "{}", ended.err);
    ended.left_nothing(&pids);
}
