//! Tests of members that leave, join, or are stopped by a signal.

use super::*;

#[test]
fn a_generation_names_those_who_leave_and_join() {
    let now = Instant::now();
    let mut set = participating(4, now);
    set.started("new");
    set.arrived("new", 1, None, now);
    assert_eq!(act(&mut set, now), Action::RequestRegroup);
    set.exited("1", &MemberExit::Clean, now);
    ["0", "2", "3"].iter().for_each(|member| set.arrived(member, 2, None, now));
    let next = form(&[("0", 2), ("2", 2), ("3", 2), ("new", 1)], "rank 1 (1) has left, new joins");
    assert_eq!(step(&mut set, now), next);
    // The members that have left before are no reason for the next generation, and a death is a better one.
    set.started("newer");
    set.arrived("newer", 1, None, now);
    set.exited("3", &failed("was killed"), now);
    ["0", "2", "new"].iter().for_each(|member| set.arrived(member, 3, None, now));
    let next = form(&[("0", 3), ("2", 3), ("new", 3), ("newer", 1)], "rank 2 (3) was killed");
    assert_eq!(step(&mut set, now), next);
    // A worker's own reason counts, too.
    set.exited("0", &MemberExit::Clean, now);
    set.arrived("2", 4, Some("rank 0 is dropped: it is slow".into()), now);
    ["new", "newer"].iter().for_each(|member| set.arrived(member, 4, None, now));
    let next = form(&[("2", 4), ("new", 4), ("newer", 4)], "rank 0 is dropped: it is slow");
    assert_eq!(step(&mut set, now), next);
}

/// Nobody else has the state of the job, or nobody has reported that it has.
#[test]
fn stopped_members_are_waited_for_unless_others_have_the_state() {
    let (now, long) = (Instant::now(), Instant::now() + 100 * POLICY.rejoin_timeout);
    let stopped = |held: &[&str], dead: &[&str]| {
        let mut set = participating(3, now);
        set.stopped("2", true);
        held.iter().for_each(|member| set.holds_state(member));
        dead.iter().for_each(|member| {
            set.exited(member, &failed("was killed"), now);
        });
        ["new", "newer"].iter().for_each(|member| set.arrived(member, 1, None, now));
        set
    };
    for held in [&[][..], &["2"], &["0", "1"]] {
        let mut set = stopped(held, &["0", "1"]);
        assert_ends_generation(&mut set, now);
        assert_waits(&mut set, long, NOT_BACK);
        assert!(set.waits_for().unwrap().ends_with("2; stopped by a signal until SIGCONT: 2"));
        // It continues, and hangs: nobody else has the state, and nobody will continue it.
        let mut hangs = set.clone();
        hangs.stopped("2", false);
        let reason = "has not come back to the others for 10 s, with the only state of the job";
        let evicted = Decision::new(Action::Evict(vec!["2".into()]), reason);
        assert_eq!(step(&mut hangs, now + POLICY.rejoin_timeout), evicted);
        set.arrived("2", 2, None, now);
        set.holds_state("2");
        assert!(matches!(act(&mut set, long), Action::FormGeneration(members) if members.len() == 3));
    }
    // Another one has come back with the state; or it hangs, so that it is no reason to give up the first.
    let mut set = stopped(&["1"], &["0"]);
    set.arrived("1", 2, None, now);
    assert_ends_generation(&mut set, now);
    let reason = "has not come back to the others for 10 s";
    let evicted = Decision::new(Action::Evict(vec!["2".into()]), reason);
    assert_eq!(step(&mut set, now + POLICY.rejoin_timeout), evicted);
    let mut set = stopped(&["1"], &["0"]);
    assert_ends_generation(&mut set, now);
    assert_eq!(act(&mut set, now + POLICY.rejoin_timeout), Action::Evict(vec!["1".into()]));
    assert_waits(&mut set, long, NOT_BACK);
}
