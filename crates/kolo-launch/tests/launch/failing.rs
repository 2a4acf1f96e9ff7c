//! Tests which failure is reported, and how soon.

use std::time::Instant;

use rustix::process::Signal;

use crate::harness::{CULPRIT, PROMISED, Trial, kill};

/// Writes down its process id and runs until it is ended.
const GOES_ON: &str = "note pid.$RANK $$; while :; do sleep 0.05; done";

#[test]
fn the_failing_rank_is_named_and_its_code_passed_on() {
    let script = r#"[ $RANK = 1 ] && { echo oops >&2; exit 3; }; exec sleep 600"#;
    let ended = Trial::new(3, script).ends_with(3);
    assert!(ended.err.contains("[rank 1] oops\n"), "{}", ended.err);
    assert!(ended.error().starts_with("rank 1 (pid "), "{}", ended.err);
    assert!(ended.error().contains("exited with code 3"), "{}", ended.err);
    assert!(ended.err.contains("ended because of it: ranks 0, 2"), "{}", ended.err);
    ended.left_nothing(&[]);
}

#[test]
fn a_worker_that_ends_well_early_is_no_failure() {
    let ended = Trial::new(2, "[ $RANK = 1 ] && { note early; exit 0; }; wait_for early; sleep 0.2").run();
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
}

#[test]
fn any_worker_can_be_killed() {
    for victim in [0, 1, 3] {
        let running = Trial::new(4, GOES_ON).start();
        let pids = running.pids(4);
        killed(running, &pids, victim);
    }
}

#[test]
fn survivors_that_ignore_sigterm_are_ended_in_time_too() {
    let running = Trial::new(3, &format!("trap '' TERM; {GOES_ON}")).start();
    let pids = running.pids(3);
    killed(running, &pids, 1);
}

#[test]
fn a_worker_can_be_killed_while_others_still_start() {
    let running = Trial::new(16, GOES_ON).start();
    let first = running.noted_pid("pid.0");
    killed(running, &[first], 0);
}

fn killed(running: crate::harness::Running, pids: &[i32], victim: usize) {
    let moment = Instant::now();
    kill(pids[victim], Signal::KILL);
    let ended = running.end();
    let took = moment.elapsed();
    assert!(took < PROMISED, "{took:?}");
    assert_eq!(ended.code, 137, "{}", ended.err);
    let named = format!("rank {victim} (pid {}) was killed by SIGKILL", pids[victim]);
    assert!(ended.error().starts_with(&named), "{}", ended.err);
    ended.left_nothing(pids);
}

#[test]
fn victims_that_are_louder_and_faster_are_not_the_cause() {
    // Ranks 0 and 2 notice that rank 1 is gone, blame it in their error files, and exit.
    let script = format!(
        r#"
        [ $RANK = 1 ] && {{ {GOES_ON}; }}
        wait_for pid.1; peer=$(cat "$DIR/pid.1"); note watching.$RANK
        while kill -0 $peer && ! grep -q '^State:.Z' /proc/$peer/status; do sleep 0.01; done 2> /dev/null
        echo '{{"message": "rank 1 died", "culprit": 1}}' > "$TORCHELASTIC_ERROR_FILE"
        exit 1"#
    );
    let running = Trial::new(3, &script).start();
    let victim = running.noted_pid("pid.1");
    running.noted("watching.0");
    running.noted("watching.2");
    kill(victim, Signal::KILL);
    let ended = running.ends_with(137);
    assert!(ended.error().starts_with("rank 1 "), "{}", ended.err);
    assert!(ended.err.contains("ended because of it: ranks 0, 2"), "{}", ended.err);
}

#[test]
fn a_report_is_shown() {
    let me = std::env::current_exe().unwrap();
    let role = [me.to_str().unwrap(), "--exact", "role_failing_worker", "--nocapture"];
    let ended = Trial::of(1, &role).after(&format!("export {CULPRIT}=none")).ends_with(4);
    assert!(ended.error().ends_with(": the disk"), "{}", ended.err);
    assert!(ended.err.contains("\n    is full"), "{}", ended.err);
    assert!(!ended.err.contains("so nothing"), "{}", ended.err);
    ended.left_nothing(&[]);
}

#[test]
fn a_report_of_torch_is_shown_and_garbage_is_not() {
    let torch =
        r#"echo '{"message": {"message": "ValueError: bad", "extraInfo": {}}}' > $TORCHELASTIC_ERROR_FILE"#;
    let ended = Trial::new(1, &format!("{torch}; exit 1")).run();
    assert!(ended.error().ends_with(": ValueError: bad"), "{}", ended.err);
    let ended = Trial::new(1, "head -c 100 /dev/zero > $TORCHELASTIC_ERROR_FILE; exit 1").run();
    assert_eq!(ended.code, 1);
    assert!(ended.error().starts_with("rank 0 ") && ended.error().is_ascii(), "{}", ended.err);
}

#[test]
fn one_that_stands_still_is_named_and_ended() {
    let script = format!(
        r#"
        [ $RANK = 0 ] || {{ {GOES_ON}; }}
        wait_for stopped
        echo '{{"message": "rank 1 did not answer", "culprit": 1}}' > "$TORCHELASTIC_ERROR_FILE"
        exit 5"#
    );
    let running = Trial::new(3, &script).start();
    let pids = [running.noted_pid("pid.1"), running.noted_pid("pid.2")];
    kill(pids[0], Signal::STOP);
    running.note("stopped");
    let ended = running.ends_with(5);
    assert!(ended.error().starts_with(&format!("rank 1 (pid {}) stood still", pids[0])), "{}", ended.err);
    assert!(ended.error().ends_with("rank 1 did not answer"), "{}", ended.err);
    ended.left_nothing(&pids);
}

#[test]
fn one_that_only_hangs_is_named_by_what_others_print() {
    // No worker reports anything: their errors go to standard error, as those of `main` do.
    for error in [
        r#"Error: Comm(Timeout { rank: Rank(1), during: "all-reduce", waited: 5s })"#,
        "error: rank 1 did not take part in all-reduce within 5s; raise --timeout",
    ] {
        let script = format!(
            r#"
            [ $RANK = 1 ] && {{ {GOES_ON}; }}
            wait_for pid.1; echo '{error}' >&2; exit 1"#
        );
        let running = Trial::new(3, &script).start();
        let hung = running.noted_pid("pid.1");
        let ended = running.ends_with(1);
        let named = format!("rank 1 (pid {hung}) is blamed by rank ");
        assert!(ended.error().starts_with(&named), "{}", ended.err);
        assert!(ended.error().contains("ran until Kolo ended it"), "{}", ended.err);
        assert!(ended.err.contains("ended because of it: ranks 0, 2"), "{}", ended.err);
    }
}

#[test]
fn of_workers_that_fail_together_none_is_called_the_first() {
    let script = r#"note here.$RANK; wait_for here.0; wait_for here.1
        echo 'Error: ModelsDiffer("2 tensors on rank 1, 4 on rank 0")' >&2; exit 1"#;
    let ended = Trial::new(2, script).ends_with(1);
    assert!(ended.error().starts_with("ranks 0, 1 exited with code 1, "), "{}", ended.err);
    assert!(
        ended.error().contains("its last words: Error: ModelsDiffer(\"2 tensors on rank 1"),
        "{}",
        ended.err
    );
}

#[test]
fn what_comes_later_without_blame_is_not_called_a_consequence() {
    let script = r#"[ $RANK = 1 ] && { wait_for gone; sleep 0.3; echo 'cannot read' >&2; exit 4; }
        note gone; exit 3"#;
    let ended = Trial::new(2, script).ends_with(3);
    assert!(ended.error().starts_with("rank 0 "), "{}", ended.err);
    let also = "also failed, perhaps because of it: rank 1 (pid ";
    assert!(ended.err.contains(also) && ended.err.contains("last words: cannot read"), "{}", ended.err);
    assert!(!ended.err.contains("ended because of it"), "{}", ended.err);
}

#[test]
fn a_panic_by_anothers_death_names_that_one() {
    let script = format!(
        r#"
        [ $RANK = 0 ] && {{ {GOES_ON}; }}
        wait_for pid.0; echo "thread 'main' panicked at src/main.rs:3:5:" >&2
        echo 'called `Result::unwrap()` on an `Err` value: Died {{ rank: Rank(0) }}' >&2; exit 101"#
    );
    let ended = Trial::new(2, &script).run();
    assert!(
        ended.error().starts_with("rank 0 (pid ") && ended.error().contains("blamed by rank 1"),
        "{}",
        ended.err
    );
}
