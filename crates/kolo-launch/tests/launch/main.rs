//! Tests with jobs of real processes. Workers are shell scripts. The launcher is this test program itself,
//! started again with a job in its environment, so that the tests can signal and kill it.

mod ending;
mod failing;
mod harness;
mod nodes;
mod output;
mod place;
mod recovery;
mod refusing;
mod stopped;
mod two_nodes;

use kolo_comm::Rank;

/// Not a test: runs the launcher, if the environment says so.
#[test]
fn role_launcher() {
    harness::launch_if_asked();
}

/// Not a test: runs a worker of a group over several nodes.
#[test]
fn role_member() {
    nodes::join_if_asked();
}

/// Not a test: runs a worker of an elastic job.
#[test]
fn role_elastic() {
    recovery::work_if_asked();
}

/// Not a test: runs a worker of an elastic job of two nodes.
#[test]
fn role_of_two_nodes() {
    two_nodes::work_if_asked();
}

/// Not a test: runs a worker that fails like Kolo's workers.
#[test]
fn role_failing_worker() {
    if let Ok(culprit) = std::env::var(harness::CULPRIT) {
        let culprit = culprit.parse().ok().map(Rank);
        kolo_launch::report_failure(&"the disk\nis full", culprit).unwrap();
        kolo_launch::report_failure(&"so nothing could be written", None).unwrap();
        std::process::exit(4);
    }
}
