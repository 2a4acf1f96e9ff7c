//! One test for each way in which jobs end.

use signal_hook::consts::signal::{SIGKILL, SIGSEGV, SIGTERM};

use super::*;
use crate::error_file::WorkerError;

const ENDED: ExitStatus = ExitStatus::ByLauncher { stopped: false };
const STOPPED: ExitStatus = ExitStatus::ByLauncher { stopped: true };

fn exit(rank: usize, millis: u64, status: ExitStatus) -> WorkerExit {
    let (after, member) = (Duration::from_millis(millis), format!("node0/{rank}.0"));
    WorkerExit { rank: Some(Rank(rank)), member, pid: 100, after, status, evicted: None, error: None }
}

impl WorkerExit {
    fn reporting(mut self, message: &str) -> WorkerExit {
        self.error = Some(WorkerError { message: message.into(), culprit: None, kind: None, reported: true });
        self
    }

    fn blaming(mut self, culprit: usize) -> WorkerExit {
        let (message, culprit) = (format!("rank {culprit} died"), Some(Rank(culprit)));
        self.error = Some(WorkerError { message, culprit, kind: None, reported: true });
        self
    }

    /// Marks the error of `reporting` or `blaming` as printed, not reported.
    fn only_printed(mut self) -> WorkerExit {
        self.error.iter_mut().for_each(|error| error.reported = false);
        self
    }
}

/// Diagnoses the exits and checks that the report does not depend on their order.
fn judge(exits: &[WorkerExit]) -> FailureReport {
    let reports: Vec<FailureReport> = (0..exits.len())
        .map(|turn| {
            let mut turned = exits.to_vec();
            turned.rotate_left(turn);
            diagnose(&turned).expect("somebody failed")
        })
        .collect();
    assert!(reports.windows(2).all(|pair| pair[0] == pair[1]), "{reports:#?}");
    reports[0].clone()
}

fn root(exits: &[WorkerExit]) -> (usize, Reason) {
    let report = judge(exits);
    (report.root.rank.unwrap().0, report.reason)
}

fn numbers(ranks: &[Rank]) -> Vec<usize> {
    ranks.iter().map(|rank| rank.0).collect()
}

#[test]
fn none_failed() {
    assert_eq!(diagnose(&[]), None);
    assert_eq!(diagnose(&[exit(0, 10, ExitStatus::Code(0)), exit(1, 20, ExitStatus::Code(0))]), None);
    assert_eq!(
        diagnose(&[exit(0, 10, ExitStatus::Code(0)), exit(1, 20, ENDED), exit(2, 20, ExitStatus::Stuck)]),
        None
    );
}

#[test]
fn one_fails_others_are_ended() {
    let report =
        judge(&[exit(0, 900, ENDED), exit(1, 50, ExitStatus::Code(7)), exit(2, 20, ExitStatus::Code(0))]);
    assert_eq!((report.root.rank, &report.reason), (Some(Rank(1)), &Reason::First));
    assert_eq!((numbers(&report.consequences), report.exit_code), (vec![0], 7));
}

#[test]
fn killed_and_its_victims_blame_it() {
    let victim = |rank, millis| exit(rank, millis, ExitStatus::Code(1)).blaming(1);
    let report =
        judge(&[victim(0, 40), exit(1, 10, ExitStatus::Signal(SIGKILL)), victim(2, 35), victim(3, 60)]);
    assert_eq!((report.root.rank, &report.reason), (Some(Rank(1)), &Reason::First));
    assert_eq!((numbers(&report.consequences), report.exit_code), (vec![0, 2, 3], 137));
    assert_eq!(report.alike, []);
}

#[test]
fn victims_seen_before_the_killed_one() {
    let killed = |millis| exit(1, millis, ExitStatus::Signal(SIGKILL));
    let blames = exit(0, 10, ExitStatus::Code(1)).blaming(1);
    let silent = exit(0, 10, ExitStatus::Code(1));
    // In the same poll, or shortly after.
    assert_eq!(root(&[blames.clone(), killed(10)]), (1, Reason::Clearest));
    assert_eq!(root(&[silent.clone(), killed(60)]), (1, Reason::Clearest));
    // Much later, only blame leads there.
    assert_eq!(root(&[blames, killed(500)]), (1, Reason::Blamed { by: Some(Rank(0)) }));
    assert_eq!(root(&[silent, killed(500)]), (0, Reason::First));
}

#[test]
fn blame_is_followed_to_its_end() {
    // 3 lost 2, 2 lost 1, and 1 had its own error.
    let own = |millis| exit(1, millis, ExitStatus::Code(1)).reporting("loss is not a number");
    let chain = |millis| {
        [
            exit(3, 10, ExitStatus::Code(1)).blaming(2),
            exit(2, 20, ExitStatus::Code(1)).blaming(1),
            own(millis),
        ]
    };
    assert_eq!(root(&chain(30)), (1, Reason::Clearest));
    assert_eq!(root(&chain(600)), (1, Reason::Blamed { by: Some(Rank(2)) }));
}

#[test]
fn two_fail_in_the_same_poll() {
    let (a, b) = (exit(0, 10, ExitStatus::Code(3)), exit(1, 10, ExitStatus::Code(4)));
    assert_eq!(root(&[a.clone(), b.clone()]), (0, Reason::First));
    assert_eq!(root(&[a.clone(), b.clone().reporting("no space left")]), (1, Reason::Clearest));
    let (reported, crashed) = (a.reporting("odd"), exit(1, 10, ExitStatus::Signal(SIGSEGV)));
    assert_eq!(root(&[reported, crashed]), (1, Reason::Clearest));
}

#[test]
fn consequences_by_signal_are_no_causes() {
    let own = exit(1, 20, ExitStatus::Code(1)).reporting("bad label");
    for consequence in [SIGPIPE, SIGABRT] {
        assert_eq!(root(&[exit(0, 10, ExitStatus::Signal(consequence)), own.clone()]).0, 1);
    }
    // An abort counts as much as an exit without a message; a broken pipe counts less.
    assert_eq!(root(&[exit(0, 10, ExitStatus::Signal(SIGABRT)), exit(1, 10, ExitStatus::Code(1))]).0, 0);
    assert_eq!(root(&[exit(0, 10, ExitStatus::Signal(SIGPIPE)), exit(1, 10, ExitStatus::Code(1))]).0, 1);
}

#[test]
fn time_decides_when_ends_are_apart() {
    let own = exit(0, 10, ExitStatus::Code(1)).reporting("bad label");
    assert_eq!(root(&[own, exit(1, 10 + 101, ExitStatus::Signal(SIGSEGV))]), (0, Reason::First));
}

#[test]
fn blames_one_that_is_stopped() {
    let report =
        judge(&[exit(0, 10, ExitStatus::Code(1)).blaming(1), exit(1, 900, STOPPED), exit(2, 900, ENDED)]);
    assert_eq!(report.root.rank, Some(Rank(1)));
    assert!(matches!(&report.reason, Reason::Stopped { noticed } if noticed.rank == Some(Rank(0))));
    // The exit code is the failed worker's, since the stopped one has none.
    assert_eq!((numbers(&report.consequences), report.exit_code), (vec![0, 2], 1));
}

#[test]
fn a_stopped_worker_without_blame_is_not_the_cause() {
    assert_eq!(root(&[exit(0, 10, ExitStatus::Code(5)), exit(1, 900, STOPPED)]), (0, Reason::First));
}

#[test]
fn one_that_others_wait_for_in_vain_is_the_cause() {
    let accuser = |rank, millis| exit(rank, millis, ExitStatus::Code(3)).blaming(1);
    for end in [ENDED, ExitStatus::Stuck] {
        let report = judge(&[accuser(0, 10), exit(1, 900, end), accuser(2, 400), exit(3, 900, ENDED)]);
        assert_eq!((report.root.rank, report.exit_code), (Some(Rank(1)), 3));
        assert!(matches!(&report.reason, Reason::Running { noticed } if noticed.rank == Some(Rank(0))));
        assert_eq!(numbers(&report.consequences), [0, 2, 3]);
    }
    // The worker's own report counts, even if it was ended before it could exit.
    let reported = exit(1, 900, ENDED).reporting("no space");
    assert_eq!(root(&[accuser(0, 10), reported]), (1, Reason::Blamed { by: Some(Rank(0)) }));
    let waits = exit(1, 900, ENDED).blaming(2);
    let report = judge(&[accuser(0, 10), waits, exit(2, 900, ENDED)]);
    assert_eq!((report.root.rank, report.exit_code), (Some(Rank(2)), 3));
}

#[test]
fn printed_errors_count_but_less_than_reported_ones() {
    let printed = exit(0, 10, ExitStatus::Code(1)).blaming(1).only_printed();
    assert_eq!(judge(&[printed.clone(), exit(1, 900, ENDED)]).root.rank, Some(Rank(1)));
    assert_eq!(
        root(&[printed, exit(1, 600, ExitStatus::Code(1))]),
        (1, Reason::Blamed { by: Some(Rank(0)) })
    );
    let progress = exit(0, 10, ExitStatus::Code(1)).reporting("step 3").only_printed();
    assert_eq!(
        root(&[progress, exit(1, 10, ExitStatus::Code(1)).reporting("no space")]),
        (1, Reason::Clearest)
    );
}

#[test]
fn a_worker_without_a_rank_is_blamed_by_nobody() {
    let newcomer = WorkerExit { rank: None, member: "node0/1.1".into(), ..exit(1, 600, ExitStatus::Code(1)) };
    let report = judge(&[exit(0, 10, ExitStatus::Code(1)).blaming(1), newcomer.clone()]);
    assert_eq!(report.reason, Reason::Blames { culprit: Rank(1), state: BlamedState::Elsewhere });
    assert_eq!(judge(&[newcomer, exit(0, 900, ENDED)]).root.rank, None);
}

#[test]
fn blames_one_that_did_not_fail() {
    let accuser = exit(0, 10, ExitStatus::Code(1)).blaming(1);
    let blames = |state| (0, Reason::Blames { culprit: Rank(1), state });
    assert_eq!(root(&[accuser.clone(), exit(1, 5, ExitStatus::Code(0))]), blames(BlamedState::EndedWell));
    assert_eq!(root(&[accuser, exit(2, 900, ENDED)]), blames(BlamedState::Elsewhere));
}

#[test]
fn blame_among_themselves() {
    let (a, b) = (exit(0, 30, ExitStatus::Code(1)).blaming(1), exit(1, 20, ExitStatus::Code(2)).blaming(0));
    assert_eq!(root(&[a.clone(), b.clone()]), (1, Reason::Mutual));
    // A worker outside the circle leads into it, but is not in it.
    let c = exit(2, 10, ExitStatus::Code(3)).blaming(0);
    let report = judge(&[a, b, c]);
    assert_eq!((report.root.rank, report.exit_code), (Some(Rank(1)), 2));
    assert_eq!(numbers(&report.consequences), [0, 2]);
}

#[test]
fn a_worker_that_blames_itself_blames_nobody() {
    assert_eq!(root(&[exit(0, 10, ExitStatus::Code(1)).blaming(0)]), (0, Reason::First));
}

#[test]
fn the_same_error_on_all() {
    let missing = |rank, millis| exit(rank, millis, ExitStatus::Code(2)).reporting("no such folder");
    let report = judge(&[missing(0, 10), missing(1, 10), missing(2, 700), exit(3, 900, ENDED)]);
    assert_eq!((report.root.rank, numbers(&report.alike)), (Some(Rank(0)), vec![1, 2]));
    assert_eq!(numbers(&report.consequences), [3]);

    // Exits without a message are alike at the same time; a later one may be a victim.
    let report = judge(&[
        exit(0, 10, ExitStatus::Code(2)),
        exit(1, 15, ExitStatus::Code(2)),
        exit(2, 500, ExitStatus::Code(2)),
    ]);
    let apart: Vec<_> = report.apart.iter().map(|exit| exit.rank).collect();
    assert_eq!((numbers(&report.alike), apart, report.consequences), (vec![1], vec![Some(Rank(2))], vec![]));
}

/// Survivors of a death end with one message, which the report has once.
#[test]
fn the_same_consequence_for_several() {
    let survivor = |rank, millis| exit(rank, millis, ExitStatus::Code(1)).reporting("too few are left");
    let report = judge(&[exit(0, 10, ExitStatus::Signal(SIGKILL)), survivor(2, 900), survivor(1, 950)]);
    let apart: Vec<_> = report.apart.iter().map(|exit| exit.rank).collect();
    assert_eq!((report.root.rank, apart), (Some(Rank(0)), vec![Some(Rank(2))]));
    assert_eq!(numbers(&report.consequences), [1]);
}

/// A survivor that is still about to exit when the launcher ends it has reported what it has saved.
#[test]
fn what_a_worker_has_saved_is_told_although_it_was_ended() {
    let died = || exit(0, 10, ExitStatus::Signal(SIGKILL));
    let saver = exit(1, 900, ENDED).reporting("a checkpoint holds all of it");
    let report = judge(&[died(), saver, exit(2, 900, ENDED)]);
    assert_eq!((report.root.rank, report.exit_code), (Some(Rank(0)), 137));
    assert!(report.to_string().contains(": a checkpoint holds all of it"), "{report}");
    assert_eq!(numbers(&report.consequences), [2]);
    // The root's own words are there once.
    let (bad, same) =
        (exit(0, 10, ExitStatus::Code(1)).reporting("bad"), exit(1, 900, ENDED).reporting("bad"));
    assert_eq!(numbers(&judge(&[bad, same]).consequences), [1]);
}

#[test]
fn two_lack_memory() {
    let report = judge(&[
        exit(0, 60, ExitStatus::Code(1)).blaming(2),
        exit(1, 10, ExitStatus::Signal(SIGKILL)),
        exit(2, 50, ExitStatus::Signal(SIGKILL)),
    ]);
    assert_eq!((report.root.rank, numbers(&report.alike)), (Some(Rank(1)), vec![2]));
    assert_eq!(numbers(&report.consequences), [0]);
}

#[test]
fn stuck_ones_are_listed_apart() {
    let report = judge(&[exit(0, 10, ExitStatus::Signal(SIGTERM)), exit(1, 4000, ExitStatus::Stuck)]);
    assert_eq!((numbers(&report.stuck), report.consequences.len()), (vec![1], 0));
    assert_eq!(report.exit_code, 143);
}

#[test]
fn exit_codes_are_never_zero() {
    for (end, code) in [
        (ExitStatus::Code(255), 255),
        (ExitStatus::Code(256), 1),
        (ExitStatus::Signal(9), 137),
        (ExitStatus::Signal(64), 192),
    ] {
        assert_eq!(judge(&[exit(0, 0, end)]).exit_code, code);
    }
}
