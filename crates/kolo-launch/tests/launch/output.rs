//! Tests of the workers' output and its destinations.

use rustix::process::Signal;

use crate::harness::{Trial, kill};

#[test]
fn lines_carry_their_rank_and_keep_their_stream() {
    let ended = Trial::new(2, r#"echo "out $RANK"; echo "err $RANK" >&2; printf 'no end'"#).run();
    assert_eq!(ended.code, 0);
    assert_eq!(ended.lines(), ["[rank 0] no end", "[rank 0] out 0", "[rank 1] no end", "[rank 1] out 1"]);
    let mut err: Vec<&str> = ended.err.lines().collect();
    err.sort_unstable();
    assert_eq!(err, ["[rank 0] err 0", "[rank 1] err 1"]);
}

#[test]
fn lines_of_many_are_never_mixed() {
    const LINES: usize = 3000;
    let script = format!(
        r#"i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); printf 'from %s, ' $RANK; echo "$i the end"; done"#
    );
    let ended = Trial::new(4, &script).ends_with(0);
    for rank in 0..4 {
        let prefix = format!("[rank {rank}] ");
        let lines: Vec<&str> = ended.out.lines().filter_map(|line| line.strip_prefix(&prefix)).collect();
        let expected: Vec<String> = (1..=LINES).map(|i| format!("from {rank}, {i} the end")).collect();
        assert_eq!(lines, expected);
    }
    assert_eq!(ended.out.lines().count(), 4 * LINES);
}

#[test]
fn a_line_of_a_megabyte_is_passed_on() {
    let ended = Trial::new(2, "head -c 1000000 /dev/zero | tr '\\0' x").ends_with(0);
    assert_eq!(ended.out.bytes().filter(|byte| *byte == b'x').count(), 2_000_000);
    assert!(ended.out.lines().all(|line| line.starts_with("[rank ") && line.len() < 70_000));
}

#[test]
fn rank_zero_may_write_untouched() {
    let script = r#"printf '10 %%\r20 %%'; echo "err $RANK" >&2"#;
    let ended = Trial::new(2, script).set("output", "rank-zero").ends_with(0);
    assert!(ended.out.contains("[rank 1] 10 %\r20 %\n"), "{:?}", ended.out);
    assert_eq!(ended.out.replace("[rank 1] 10 %\r20 %\n", ""), "10 %\r20 %");
    let mut err: Vec<&str> = ended.err.lines().collect();
    err.sort_unstable();
    assert_eq!(err, ["[rank 1] err 1", "err 0"]);
}

#[test]
fn a_stranger_with_the_pipe_does_not_hold_the_launcher() {
    let running = Trial::new(2, "setsid sleep 600 & note stranger.$RANK $!; echo said").start();
    let strangers = [running.noted_pid("stranger.0"), running.noted_pid("stranger.1")];
    let ended = running.end();
    strangers.iter().for_each(|pid| kill(*pid, Signal::KILL));
    assert_eq!((ended.code, ended.lines()), (0, vec!["[rank 0] said", "[rank 1] said"]));
}
