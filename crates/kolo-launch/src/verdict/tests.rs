//! One case a way in which jobs end.

use signal_hook::consts::signal::{SIGKILL, SIGSEGV, SIGTERM};

use super::*;
use crate::report::Failure;

const ENDED: End = End::ByLauncher { stopped: false };
const FROZEN: End = End::ByLauncher { stopped: true };

fn exit(rank: usize, millis: u64, end: End) -> Exit {
    Exit { rank: Rank(rank), pid: 100, after: Duration::from_millis(millis), end, failure: None }
}

impl Exit {
    fn says(mut self, message: &str) -> Exit {
        self.failure = Some(Failure { message: message.into(), culprit: None });
        self
    }

    fn blaming(mut self, culprit: usize) -> Exit {
        self.failure =
            Some(Failure { message: format!("rank {culprit} died"), culprit: Some(Rank(culprit)) });
        self
    }
}

/// The verdict must not depend on the order in which the ends are listed.
fn judge(exits: &[Exit]) -> Verdict {
    let verdicts: Vec<Verdict> = (0..exits.len())
        .map(|turn| {
            let mut turned = exits.to_vec();
            turned.rotate_left(turn);
            verdict(&turned).expect("somebody failed")
        })
        .collect();
    assert!(verdicts.windows(2).all(|pair| pair[0] == pair[1]), "{verdicts:#?}");
    verdicts[0].clone()
}

fn root(exits: &[Exit]) -> (usize, Reason) {
    let verdict = judge(exits);
    (verdict.root.rank.0, verdict.reason)
}

fn numbers(ranks: &[Rank]) -> Vec<usize> {
    ranks.iter().map(|rank| rank.0).collect()
}

#[test]
fn nobody_failed() {
    assert_eq!(verdict(&[]), None);
    assert_eq!(verdict(&[exit(0, 10, End::Code(0)), exit(1, 20, End::Code(0))]), None);
    assert_eq!(verdict(&[exit(0, 10, End::Code(0)), exit(1, 20, ENDED), exit(2, 20, End::Stuck)]), None);
}

#[test]
fn one_fails_others_are_ended() {
    let verdict = judge(&[exit(0, 900, ENDED), exit(1, 50, End::Code(7)), exit(2, 20, End::Code(0))]);
    assert_eq!((verdict.root.rank, &verdict.reason), (Rank(1), &Reason::First));
    assert_eq!((numbers(&verdict.consequences), verdict.exit_code), (vec![0], 7));
}

#[test]
fn killed_and_its_victims_blame_it() {
    let victim = |rank, millis| exit(rank, millis, End::Code(1)).blaming(1);
    let verdict = judge(&[victim(0, 40), exit(1, 10, End::Signal(SIGKILL)), victim(2, 35), victim(3, 60)]);
    assert_eq!((verdict.root.rank, &verdict.reason), (Rank(1), &Reason::First));
    assert_eq!((numbers(&verdict.consequences), verdict.exit_code), (vec![0, 2, 3], 137));
    assert_eq!(verdict.alike, []);
}

#[test]
fn victims_seen_before_the_killed_one() {
    let killed = |millis| exit(1, millis, End::Signal(SIGKILL));
    let blames = exit(0, 10, End::Code(1)).blaming(1);
    let dumb = exit(0, 10, End::Code(1));
    // In the same poll, or shortly after.
    assert_eq!(root(&[blames.clone(), killed(10)]), (1, Reason::Clearest));
    assert_eq!(root(&[dumb.clone(), killed(60)]), (1, Reason::Clearest));
    // Much later only blame leads there.
    assert_eq!(root(&[blames, killed(500)]), (1, Reason::Blamed { by: Rank(0) }));
    assert_eq!(root(&[dumb, killed(500)]), (0, Reason::First));
}

#[test]
fn blame_is_followed_to_its_end() {
    // 3 lost 2, 2 lost 1, 1 had an error of its own.
    let own = |millis| exit(1, millis, End::Code(1)).says("loss is not a number");
    let chain =
        |millis| [exit(3, 10, End::Code(1)).blaming(2), exit(2, 20, End::Code(1)).blaming(1), own(millis)];
    assert_eq!(root(&chain(30)), (1, Reason::Clearest));
    assert_eq!(root(&chain(600)), (1, Reason::Blamed { by: Rank(2) }));
}

#[test]
fn two_fail_in_the_same_poll() {
    let (a, b) = (exit(0, 10, End::Code(3)), exit(1, 10, End::Code(4)));
    assert_eq!(root(&[a.clone(), b.clone()]), (0, Reason::First));
    assert_eq!(root(&[a.clone(), b.clone().says("no space left")]), (1, Reason::Clearest));
    let (said, crashed) = (a.says("odd"), exit(1, 10, End::Signal(SIGSEGV)));
    assert_eq!(root(&[said, crashed]), (1, Reason::Clearest));
}

#[test]
fn consequences_by_signal_are_no_causes() {
    let own = exit(1, 20, End::Code(1)).says("bad label");
    for consequence in [SIGPIPE, SIGABRT] {
        assert_eq!(root(&[exit(0, 10, End::Signal(consequence)), own.clone()]).0, 1);
    }
    // An abort is as good as an exit without a word; a broken pipe is less.
    assert_eq!(root(&[exit(0, 10, End::Signal(SIGABRT)), exit(1, 10, End::Code(1))]).0, 0);
    assert_eq!(root(&[exit(0, 10, End::Signal(SIGPIPE)), exit(1, 10, End::Code(1))]).0, 1);
}

#[test]
fn time_decides_when_ends_are_apart() {
    let own = exit(0, 10, End::Code(1)).says("bad label");
    assert_eq!(root(&[own, exit(1, 10 + 101, End::Signal(SIGSEGV))]), (0, Reason::First));
}

#[test]
fn blames_one_who_stands_still() {
    let verdict = judge(&[exit(0, 10, End::Code(1)).blaming(1), exit(1, 900, FROZEN), exit(2, 900, ENDED)]);
    assert_eq!(verdict.root.rank, Rank(1));
    assert!(matches!(&verdict.reason, Reason::StoodStill { noticed } if noticed.rank == Rank(0)));
    // The code is that of the worker that failed: the one that stood still has none.
    assert_eq!((numbers(&verdict.consequences), verdict.exit_code), (vec![0, 2], 1));
}

#[test]
fn standing_still_without_blame_is_nobodys_fault() {
    assert_eq!(root(&[exit(0, 10, End::Code(5)), exit(1, 900, FROZEN)]), (0, Reason::First));
}

#[test]
fn blames_one_who_did_not_fail() {
    let accuser = exit(0, 10, End::Code(1)).blaming(1);
    let blames = |standing| (0, Reason::Blames { culprit: Rank(1), standing });
    assert_eq!(root(&[accuser.clone(), exit(1, 900, ENDED)]), blames(Standing::Running));
    assert_eq!(root(&[accuser.clone(), exit(1, 900, End::Stuck)]), blames(Standing::Running));
    assert_eq!(root(&[accuser.clone(), exit(1, 5, End::Code(0))]), blames(Standing::EndedWell));
    assert_eq!(root(&[accuser, exit(2, 900, ENDED)]), blames(Standing::Elsewhere));
}

#[test]
fn blame_among_themselves() {
    let (a, b) = (exit(0, 30, End::Code(1)).blaming(1), exit(1, 20, End::Code(2)).blaming(0));
    assert_eq!(root(&[a.clone(), b.clone()]), (1, Reason::Mutual));
    // One outside the circle leads into it, and is not in it.
    let c = exit(2, 10, End::Code(3)).blaming(0);
    let verdict = judge(&[a, b, c]);
    assert_eq!((verdict.root.rank, verdict.exit_code), (Rank(1), 2));
    assert_eq!(numbers(&verdict.consequences), [0, 2]);
}

#[test]
fn who_blames_itself_blames_nobody() {
    assert_eq!(root(&[exit(0, 10, End::Code(1)).blaming(0)]), (0, Reason::First));
}

#[test]
fn the_same_for_all() {
    let missing = |rank, millis| exit(rank, millis, End::Code(2)).says("no such folder");
    let verdict = judge(&[missing(0, 10), missing(1, 10), missing(2, 700), exit(3, 900, ENDED)]);
    assert_eq!((verdict.root.rank, numbers(&verdict.alike)), (Rank(0), vec![1, 2]));
    assert_eq!(numbers(&verdict.consequences), [3]);

    // Without a word: at the same time alike, later perhaps a victim.
    let verdict = judge(&[exit(0, 10, End::Code(2)), exit(1, 15, End::Code(2)), exit(2, 500, End::Code(2))]);
    assert_eq!((numbers(&verdict.alike), numbers(&verdict.consequences)), (vec![1], vec![2]));
}

#[test]
fn two_lack_memory() {
    let verdict = judge(&[
        exit(0, 60, End::Code(1)).blaming(2),
        exit(1, 10, End::Signal(SIGKILL)),
        exit(2, 50, End::Signal(SIGKILL)),
    ]);
    assert_eq!((verdict.root.rank, numbers(&verdict.alike)), (Rank(1), vec![2]));
    assert_eq!(numbers(&verdict.consequences), [0]);
}

#[test]
fn stuck_ones_are_listed_apart() {
    let verdict = judge(&[exit(0, 10, End::Signal(SIGTERM)), exit(1, 4000, End::Stuck)]);
    assert_eq!((numbers(&verdict.stuck), verdict.consequences.len()), (vec![1], 0));
    assert_eq!(verdict.exit_code, 143);
}

#[test]
fn exit_codes_are_never_zero() {
    for (end, code) in
        [(End::Code(255), 255), (End::Code(256), 1), (End::Signal(9), 137), (End::Signal(64), 192)]
    {
        assert_eq!(judge(&[exit(0, 0, end)]).exit_code, code);
    }
}
