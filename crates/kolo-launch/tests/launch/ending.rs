//! Tests that no process or file is left, however the job ends.

use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{Running, Trial, alive, wait_for_state};

/// A worker with a child and a grandchild; each writes down its process id.
const FAMILY: &str = r#"
    sh -c 'sleep 600 & echo $! > "$DIR/.g.$RANK"; mv "$DIR/.g.$RANK" "$DIR/grandchild.$RANK"; wait' &
    note child.$RANK $!
    note pid.$RANK $$
"#;

fn family(running: &Running, nproc: usize) -> Vec<i32> {
    let mut pids = running.pids(nproc);
    for rank in 0..nproc {
        pids.push(running.noted_pid(&format!("child.{rank}")));
        pids.push(running.noted_pid(&format!("grandchild.{rank}")));
    }
    pids
}

#[test]
fn children_end_with_a_failed_job() {
    let running = Trial::new(2, &format!("{FAMILY} wait_for go; [ $RANK = 0 ] && exit 9; wait")).start();
    let pids = family(&running, 2);
    running.note("go");
    let ended = running.ends_with(9);
    ended.left_nothing(&pids);
}

#[test]
fn children_end_with_a_job_that_ends_well() {
    let running = Trial::new(2, &format!("{FAMILY} wait_for grandchild.$RANK; echo done")).start();
    let pids = family(&running, 2);
    let ended = running.end();
    assert_eq!((ended.code, ended.lines()), (0, vec!["[rank 0] done", "[rank 1] done"]), "{}", ended.err);
    ended.left_nothing(&pids);
}

#[test]
fn all_end_when_the_launcher_is_killed() {
    let running = Trial::new(3, &format!("trap '' TERM HUP INT; {FAMILY} wait; wait; wait")).start();
    let pids = family(&running, 3);
    assert!(pids.iter().all(|pid| alive(*pid)));
    running.signal(Signal::KILL);
    running.end().left_nothing(&pids);
}

#[test]
fn all_end_when_the_launcher_is_killed_while_it_starts_them() {
    for rank in [0, 1, 3, 7] {
        let running = Trial::new(8, &format!("trap '' TERM; {FAMILY} wait; wait; wait")).start();
        running.noted(&format!("pid.{rank}"));
        running.signal(Signal::KILL);
        running.end().left_nothing(&[]);
    }
}

#[test]
fn signals_mean_what_they_did_when_the_job_is_over() {
    let running = Trial::new(1, "true").set("linger", true).start();
    running.noted("lingering");
    running.signal(Signal::TERM);
    assert_eq!(running.end().code, -Signal::TERM.as_raw());
}

#[test]
fn signals_are_passed_on_and_end_the_job() {
    for (signal, name, code) in [
        (Signal::TERM, "TERM", 143),
        (Signal::INT, "INT", 130),
        (Signal::HUP, "HUP", 129),
        (Signal::XCPU, "XCPU", 152),
    ] {
        if kolo_testing::ignores(signal.as_raw()) {
            eprintln!("not tested: this test program was started with SIG{name} ignored");
            continue;
        }
        let script =
            format!("trap 'note got.$RANK; exit 0' {name}; note pid.$RANK $$; while :; do sleep 0.05; done");
        let running = Trial::new(2, &script).set("grace_ms", 60_000).start();
        let pids = running.pids(2);
        running.signal(signal);
        running.noted("got.0");
        running.noted("got.1");
        let ended = running.end();
        assert_eq!((ended.code, ended.error()), (code, format!("ended by SIG{name}").as_str()));
        ended.left_nothing(&pids);
    }
}

#[test]
fn reports_at_a_signal_are_shown_once() {
    let script = r#"
        say() { echo "{\"message\": \"$1\", \"culprit\": $2}" > "$TORCHELASTIC_ERROR_FILE"; exit 143; }
        [ $RANK = 2 ] && trap 'say "rank 0 died" 0' TERM || trap 'say "a checkpoint holds all of it" null' TERM
        note pid.$RANK $$; while :; do sleep 0.05; done"#;
    let running = Trial::new(3, script).set("grace_ms", 60_000).start();
    running.pids(3);
    running.signal(Signal::TERM);
    let ended = running.end();
    assert_eq!((ended.code, ended.error()), (143, "ended by SIGTERM"), "{}", ended.err);
    assert!(ended.err.contains("\n  rank 0: a checkpoint holds all of it"), "{}", ended.err);
    assert!(!ended.err.contains("rank 1: ") && !ended.err.contains("died"), "{}", ended.err);
}

#[test]
fn a_second_signal_skips_the_grace() {
    let script = "trap 'note got.$RANK' TERM; note pid.$RANK $$; while :; do sleep 0.05; done";
    let running = Trial::new(2, script).set("grace_ms", 3_600_000).start();
    let pids = running.pids(2);
    running.signal(Signal::TERM);
    running.noted("got.0");
    // Within a second, it counts as the same request. Only one signal is sent: the launcher restores the
    // default actions when the job is over, so another one would kill it.
    std::thread::sleep(Duration::from_millis(1_100));
    running.signal(Signal::TERM);
    let ended = running.ends_with(143);
    ended.left_nothing(&pids);
}

#[test]
fn the_same_request_twice_skips_no_grace() {
    let script = "trap 'note got.$RANK; wait_for go; note tidied.$RANK; exit 0' TERM; note pid.$RANK $$
        while :; do sleep 0.05; done";
    let running = Trial::new(2, script).start();
    let pids = running.pids(2);
    running.signal(Signal::TERM);
    // Job managers signal all processes of a job together, and then each one.
    running.signal(Signal::TERM);
    running.noted("got.0");
    running.noted("got.1");
    running.note("go");
    let ended = running.end();
    assert_eq!((ended.code, ended.error()), (143, "ended by SIGTERM"), "{}", ended.err);
    assert!(ended.path("tidied.0").exists() && ended.path("tidied.1").exists(), "{}", ended.err);
    ended.left_nothing(&pids);
}

/// Simulates Ctrl-Z and `fg`.
#[test]
fn workers_stop_and_go_on_with_their_launcher() {
    let running = Trial::new(2, "note pid.$RANK $$; exec sleep 600").start();
    let pids = running.pids(2);
    running.signal(Signal::TSTP);
    pids.iter().for_each(|pid| wait_for_state(*pid, 'T'));
    wait_for_state(running.pid(), 'T');
    running.signal(Signal::CONT);
    pids.iter().for_each(|pid| wait_for_state(*pid, 'S'));
    running.signal(Signal::TERM);
    assert_eq!(running.end().code, 143);
}

#[test]
fn the_loss_with_killed_workers_is_reported() {
    let script = "trap 'note got.$RANK' TERM; note pid.$RANK $$; while :; do sleep 0.05; done";
    let running = Trial::new(2, script).set("grace_ms", 100).start();
    running.pids(2);
    running.signal(Signal::TERM);
    let ended = running.end();
    let message = "Kolo kills 2 workers: not ended within 0.1 s; what has been done since";
    assert!(ended.code == 143 && ended.err.contains(message), "{}", ended.err);
}

#[test]
fn grace_is_given_and_ends() {
    let script = r#"
        [ $RANK = 0 ] && { wait_for pid.1; wait_for pid.2; exit 1; }
        [ $RANK = 1 ] && trap 'sleep 0.3; note tidied; exit 0' TERM || trap '' TERM
        note pid.$RANK $$; while :; do sleep 0.05; done"#;
    let running = Trial::new(3, script).start();
    let pids = [running.noted_pid("pid.1"), running.noted_pid("pid.2")];
    let ended = running.ends_with(1);
    assert!(ended.path("tidied").exists(), "{}", ended.err);
    ended.left_nothing(&pids);
}

#[test]
fn what_nohup_ignores_stays_ignored() {
    let running = Trial::new(2, "note pid.$RANK $$; wait_for go").after("trap '' HUP").start();
    running.pids(2);
    running.signal(Signal::HUP);
    running.note("go");
    assert_eq!(running.end().code, 0);
}

#[test]
fn jobs_in_one_process_do_not_disturb_each_other() {
    let code = |script: &'static str| {
        std::thread::spawn(move || kolo_launch::run(&kolo_launch::Job::new(["sh", "-c", script], 2)))
    };
    let (bad, good) = (code("exit 3"), code("sleep 0.3"));
    assert_eq!(bad.join().unwrap().unwrap_err().exit_code(), 3);
    good.join().unwrap().unwrap();
}
