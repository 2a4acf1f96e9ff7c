//! Tests of elastic jobs whose workers a signal has stopped, or that hang.

use rustix::process::Signal;

use crate::harness::{Running, kill};
use crate::recovery::trial;

/// Starts three workers with this task, of which two are replaced. Those that hang are ended after a second.
fn start(task: &str) -> Running {
    let program = std::env::current_exe().unwrap();
    trial(task, program.to_str().unwrap()).set("restarts", 2).set("patience_ms", 1000).start()
}

/// Somebody stops the whole job: nobody is killed, and the launcher says that it waits.
#[test]
fn a_job_whose_workers_are_all_stopped_waits_and_says_so() {
    let running = start("wait");
    let pids = running.pids(3);
    pids.iter().for_each(|pid| kill(*pid, Signal::STOP));
    running.wait_for_output("stopped by a signal; the job waits until they continue (SIGCONT)");
    pids.iter().for_each(|pid| kill(*pid, Signal::CONT));
    running.note("go");
    let ended = running.ends_with(0);
    assert!(!ended.err.contains("Kolo ends it"), "{}", ended.err);
    ended.left_nothing(&pids);
}

/// The replacements of the dead ones wait for the state, which only the stopped worker has.
#[test]
fn the_last_worker_with_the_state_is_waited_for_while_it_is_stopped() {
    let running = start("wait");
    let pids = running.pids(3);
    kill(pids[2], Signal::STOP);
    pids[..2].iter().for_each(|pid| kill(*pid, Signal::KILL));
    // Both replacements have arrived, and have waited for longer than for a worker that hangs.
    running.wait_for_output("stopped by a signal; the job waits until they continue (SIGCONT)");
    running.wait_for_output("workers have not come back from generation 1: node0/2.0; stopped by a signal");
    kill(pids[2], Signal::CONT);
    running.wait_for_output("kolo: generation 2 of ");
    running.note("go");
    let ended = running.ends_with(0);
    assert!(!ended.err.contains("Kolo ends it"), "{}", ended.err);
    ended.left_nothing(&pids);
}

/// It is not stopped, so nobody will continue it.
#[test]
fn the_error_of_a_lost_state_says_that_the_launcher_ended_the_last_worker_that_had_it() {
    let running = start("hang");
    let pids = running.pids(3);
    pids[..2].iter().for_each(|pid| kill(*pid, Signal::KILL));
    let ended = running.end();
    let (hung, alone) = ("it has not come back to the others for ", " s, with the only state of the job");
    let names = |begin: &str| {
        let line = ended.err.lines().find(|line| line.contains(begin));
        line.is_some_and(|line| line.contains(hung) && line.contains(alone) && !line.contains("by hand"))
    };
    assert!(names("kolo: rank 2 (node0/2.0) hangs; Kolo ends it: "), "{}", ended.err);
    assert!(names(&format!("rank 2 (pid {}) was killed by SIGKILL, ", pids[2])), "{}", ended.err);
    assert!(ended.err.contains("(by Kolo, because it has not"), "{}", ended.err);
    ended.left_nothing(&pids);
}
