//! Tests of the leader's decisions, one by one: events, a time, and the decision.

mod changes;
mod ending;

use std::time::{Duration, Instant};

use super::*;
use crate::events::MemberExit;
use crate::generation::Formed;

const POLICY: MembershipPolicy = MembershipPolicy {
    min_members: 2,
    start_timeout: Duration::from_secs(100),
    rejoin_timeout: Duration::from_secs(10),
    too_few_timeout: Duration::from_secs(50),
};

/// Decides and applies the decision, as the leader does.
fn step(set: &mut WorkerSet, now: Instant) -> Decision {
    let decision = set.decide(now);
    set.apply(&decision, now);
    decision
}

/// Calls [`step`] and returns the action alone.
fn act(set: &mut WorkerSet, now: Instant) -> Action {
    step(set, now).action
}

fn assert_waits(set: &mut WorkerSet, now: Instant, reason: &str) {
    assert_eq!(step(set, now), Decision::new(Action::Wait, reason));
}

/// Members are told once that their generation is over.
fn assert_ends_generation(set: &mut WorkerSet, now: Instant) {
    assert_eq!(step(set, now), Decision::new(Action::RequestRegroup, "the generation is over"));
}

const NOBODY: &str = "no member waits for an assignment";
const NOT_STARTED: &str = "not all members that were started have arrived";
const NOT_BACK: &str = "members of the last generation have not come back";
const TOO_FEW: &str = "too few members wait for a generation";

fn failed(how: &str) -> MemberExit {
    MemberExit::Failed(how.into())
}

/// A generation of these members, none of which has reported that it holds the state.
fn formed(generation: u64, members: &[&str]) -> Formed {
    let members = members.iter().map(|member| member.to_string()).collect();
    Formed { generation, members, ..Formed::default() }
}

/// `count` workers that are all in generation 1.
fn participating(count: usize, now: Instant) -> WorkerSet {
    let mut set = WorkerSet::new(POLICY, now);
    (0..count).for_each(|n| set.started(&n.to_string()));
    for n in 0..count {
        assert_waits(&mut set, now, if n == 0 { NOBODY } else { NOT_STARTED });
        set.arrived(&n.to_string(), 1, None, now);
    }
    assert!(matches!(step(&mut set, now).action, Action::FormGeneration(_)));
    assert_waits(&mut set, now, NOBODY);
    set
}

fn candidate(member: &str, arrival: u64) -> Candidate {
    Candidate { member: member.into(), arrival }
}

fn form(members: &[(&str, u64)], reason: &str) -> Decision {
    let candidates = members.iter().map(|(member, arrival)| candidate(member, *arrival)).collect();
    Decision::new(Action::FormGeneration(candidates), reason)
}

#[test]
fn the_first_generation_waits_for_all_that_were_started() {
    let now = Instant::now();
    let mut set = WorkerSet::new(POLICY, now);
    ["a", "b", "c"].iter().for_each(|member| set.started(member));
    set.arrived("b", 1, None, now);
    set.arrived("c", 1, None, now);
    assert_waits(&mut set, now, NOT_STARTED);
    let late = now + POLICY.start_timeout;
    assert!(matches!(act(&mut set, late), Action::FormGeneration(members) if members.len() == 2));

    let mut set = WorkerSet::new(POLICY, now);
    ["a", "b"].iter().for_each(|member| set.started(member));
    set.arrived("b", 1, None, now);
    assert!(matches!(act(&mut set, now + POLICY.start_timeout), Action::GiveUp { .. }));
}

#[test]
fn after_a_death_the_others_go_on_as_soon_as_they_are_back() {
    let now = Instant::now();
    let mut set = participating(4, now);
    assert_eq!(set.exited("1", &failed("was killed"), now), Some(1));
    set.arrived("3", 2, Some("rank 1 died".into()), now);
    set.arrived("0", 2, None, now);
    assert_ends_generation(&mut set, now);
    assert_waits(&mut set, now, NOT_BACK);
    set.arrived("2", 2, None, now);
    assert_eq!(step(&mut set, now), form(&[("0", 2), ("2", 2), ("3", 2)], "rank 1 (1) was killed"));
    assert_eq!(set.generation(), 2);
}

/// A newcomer that could not join its generation comes back, while the others still wait for it there.
#[test]
fn members_that_form_a_generation_hear_that_one_has_left_it() {
    let now = Instant::now();
    let mut set = participating(3, now);
    set.arrived("2", 2, Some("the store's connection broke".into()), now);
    assert_ends_generation(&mut set, now);
    assert_waits(&mut set, now, NOT_BACK);
    set.arrived("0", 2, Some("rank 0 gave up".into()), now);
    set.arrived("1", 2, None, now);
    let next = form(&[("0", 2), ("1", 2), ("2", 2)], "the store's connection broke");
    assert_eq!(step(&mut set, now), next);
}

#[test]
fn newcomers_join_at_the_end_of_a_step() {
    let now = Instant::now();
    let mut set = participating(2, now);
    set.started("new");
    assert_waits(&mut set, now, NOBODY);
    set.arrived("new", 1, None, now);
    assert_eq!(act(&mut set, now), Action::RequestRegroup);
    assert_waits(&mut set, now, "the running generation has not ended its step");
    set.arrived("1", 2, None, now);
    set.arrived("0", 2, None, now);
    assert_eq!(step(&mut set, now), form(&[("0", 2), ("1", 2), ("new", 1)], "new joins"));
}

#[test]
fn a_member_that_does_not_come_back_is_evicted() {
    let now = Instant::now();
    let mut set = participating(3, now);
    set.arrived("0", 2, Some("rank 2 did not take part".into()), now);
    set.arrived("1", 2, None, now);
    assert_ends_generation(&mut set, now);
    assert_waits(&mut set, now + POLICY.rejoin_timeout / 2, NOT_BACK);
    assert_eq!(act(&mut set, now + POLICY.rejoin_timeout), Action::Evict(vec!["2".into()]));
    let next = step(&mut set, now + POLICY.rejoin_timeout);
    assert_eq!(next, form(&[("0", 2), ("1", 2)], "rank 2 did not take part"));
    // Its process ends later.
    assert_eq!(set.exited("2", &failed("was killed"), now), None);
}

#[test]
fn working_members_get_more_time() {
    let (now, seconds) = (Instant::now(), Duration::from_secs);
    let mut set = participating(3, now);
    set.arrived("0", 2, Some("rank 1 did not take part".into()), now);
    // Member 1 works a second in each second; member 2 uses little CPU time, as a process that only waits.
    for second in 0..=20 {
        set.took_cpu_time("1", seconds(second), now + seconds(second));
        set.took_cpu_time("2", Duration::from_millis(second), now + seconds(second));
    }
    assert_ends_generation(&mut set, now);
    assert_eq!(act(&mut set, now + seconds(20)), Action::Evict(vec!["2".into()]));
    assert_waits(&mut set, now + seconds(20), NOT_BACK);
    assert_eq!(act(&mut set, now + seconds(26)), Action::Evict(vec!["1".into()]), "it works no more");

    let mut set = participating(3, now);
    set.arrived("0", 2, Some("rank 1 did not take part".into()), now);
    set.arrived("2", 2, None, now);
    set.took_cpu_time("1", seconds(1), now + 10 * POLICY.rejoin_timeout);
    assert_ends_generation(&mut set, now);
    assert_eq!(act(&mut set, now + 10 * POLICY.rejoin_timeout), Action::Evict(vec!["1".into()]));
}

#[test]
fn returned_members_suggest_the_timeout() {
    let now = Instant::now();
    for (suggested, wait) in [([2, 3], 3), ([1, 30], 30)] {
        let mut set = participating(3, now);
        for (member, seconds) in ["0", "1"].into_iter().zip(suggested) {
            set.arrived(member, 2, Some("rank 2 did not take part".into()), now);
            set.suggest_rejoin_timeout(Duration::from_secs(seconds));
        }
        assert_ends_generation(&mut set, now);
        assert_waits(&mut set, now + Duration::from_secs(wait) / 2, NOT_BACK);
        assert_eq!(act(&mut set, now + Duration::from_secs(wait)), Action::Evict(vec!["2".into()]));
        // The members of the next generation have not suggested a time yet.
        assert!(matches!(act(&mut set, now), Action::FormGeneration(_)));
        set.arrived("0", 3, Some("rank 1 did not take part".into()), now);
        assert_ends_generation(&mut set, now);
        assert_waits(&mut set, now + POLICY.rejoin_timeout / 2, NOT_BACK);
        assert_eq!(act(&mut set, now + POLICY.rejoin_timeout), Action::Evict(vec!["1".into()]));
    }
}

#[test]
fn another_coordinator_goes_on_where_the_last_one_ended() {
    let now = Instant::now();
    let mut set = WorkerSet::resume(POLICY, &formed(4, &["0", "1", "2"]), "the leader has ended", now);
    // The leader's own members end with it; the others know nothing of each other yet.
    set.exited("0", &failed("was lost"), now);
    set.arrived("2", 5, Some("rank 0 died".into()), now);
    assert_ends_generation(&mut set, now);
    assert_waits(&mut set, now, NOT_BACK);
    set.arrived("1", 5, None, now);
    assert_eq!(step(&mut set, now), form(&[("1", 5), ("2", 5)], "the leader has ended"));
    assert_eq!(set.generation(), 5);

    // Before the first generation nothing is lost.
    let mut set = WorkerSet::resume(POLICY, &formed(0, &[]), "the leader has ended", now);
    set.started("1");
    set.arrived("1", 1, None, now);
    set.arrived("2", 1, None, now);
    assert_eq!(step(&mut set, now), form(&[("1", 1), ("2", 1)], "the job begins"));
}

#[test]
fn later_generations_of_other_launchers_count() {
    let now = Instant::now();
    let mut set = WorkerSet::resume(POLICY, &formed(4, &["0", "1"]), "", now);
    set.has_been(&formed(6, &["0", "1"]));
    set.has_been(&formed(5, &["0", "1"]));
    set.arrived("0", 2, None, now);
    set.arrived("1", 2, None, now);
    assert!(matches!(act(&mut set, now), Action::FormGeneration(_)));
    assert_eq!(set.generation(), 7);

    // A leader that has taken over knows of the generation, but not of its members.
    let mut set = WorkerSet::resume(POLICY, &formed(0, &[]), "", now);
    set.has_been(&formed(6, &[]));
    set.arrived("0", 2, None, now);
    set.holds_state("0");
    assert_eq!(act(&mut set, now), Action::EndGeneration);
    assert_waits(&mut set, now, TOO_FEW);
    set.arrived("1", 2, None, now);
    assert_eq!(step(&mut set, now), form(&[("0", 2), ("1", 2)], "members have left"));
}

#[test]
fn a_leader_that_takes_over_knows_that_the_state_was_held() {
    let now = Instant::now();
    // Generation 2 began with a newcomer, and everyone with the state died before the newcomer got it.
    let last = Formed { state_held: true, ..formed(2, &["0", "1", "new"]) };
    let mut set = WorkerSet::resume(POLICY, &last, "the leading launcher was lost", now);
    set.exited("0", &failed("was lost with its launcher"), now);
    set.exited("1", &failed("was lost with its launcher"), now);
    set.arrived("new", 2, None, now);
    assert_eq!(act(&mut set, now), Action::ReportStateLost(vec![candidate("new", 2)]));
}

#[test]
fn a_granted_generation_has_the_number_that_was_granted() {
    let now = Instant::now();
    let mut set = participating(2, now);
    for member in ["0", "1"] {
        set.arrived(member, 2, None, now);
    }
    set.granted(7);
    assert!(matches!(act(&mut set, now), Action::FormGeneration(_)));
    assert_eq!(set.generation(), 7);
}

#[test]
fn a_decision_alone_changes_nothing() {
    let now = Instant::now();
    let mut set = participating(2, now);
    set.arrived("new", 1, None, now);
    assert_eq!(set.decide(now), set.decide(now));
    assert_eq!(act(&mut set, now), Action::RequestRegroup);
}

#[test]
fn an_assignment_is_not_the_state() {
    let now = Instant::now();
    let mut set = participating(2, now);
    set.arrived("new", 1, None, now);
    assert_eq!(act(&mut set, now), Action::RequestRegroup);
    for member in ["0", "1"] {
        set.arrived(member, 2, None, now);
        set.holds_state(member);
    }
    assert_eq!(step(&mut set, now), form(&[("0", 2), ("1", 2), ("new", 1)], "new joins"));
    // Before the newcomer has got the state.
    set.exited("0", &failed("was killed"), now);
    set.exited("1", &failed("was killed"), now);
    set.arrived("new", 2, Some("rank 0 was killed".into()), now);
    assert_eq!(act(&mut set, now), Action::ReportStateLost(vec![candidate("new", 2)]));

    // A generation that was never formed gives the state to no member.
    let mut set = participating(3, now);
    set.exited("0", &failed("was killed"), now);
    ["1", "2"].iter().for_each(|member| set.arrived(member, 2, None, now));
    assert_eq!(step(&mut set, now), form(&[("1", 2), ("2", 2)], "rank 0 (0) was killed"));
}

#[test]
fn the_launchers_reason_replaces_a_members_guess() {
    let now = Instant::now();
    // A survivor comes back before the launcher has seen the death.
    let mut set = participating(3, now);
    set.arrived("1", 2, Some("rank 0 died".into()), now);
    set.exited("0", &failed("was killed"), now);
    set.arrived("2", 2, Some("rank 0 died".into()), now);
    assert_eq!(step(&mut set, now), form(&[("1", 2), ("2", 2)], "rank 0 (0) was killed"));
    // The second death follows from the first one.
    set.exited("1", &failed("was killed"), now);
    set.exited("2", &failed("exited with 1"), now);
    set.started("3");
    set.arrived("3", 1, None, now);
    assert_eq!(set.ended.as_ref().unwrap().reason, "rank 0 (1) was killed");
}

#[test]
fn servers_rank_behind_workers_and_do_not_count() {
    let now = Instant::now();
    let mut set = WorkerSet::new(POLICY, now);
    ["a", "s", "b"].iter().for_each(|member| set.started(member));
    for member in ["s", "a", "b"] {
        set.arrived(member, 1, None, now);
        if member == "s" {
            set.is_server(member);
        }
    }
    assert_eq!(step(&mut set, now), form(&[("a", 1), ("b", 1), ("s", 1)], "the job begins"));
    // A dead server counts as a dead member; a new server ranks behind a new worker.
    set.exited("s", &failed("was killed"), now);
    ["t", "c"].iter().for_each(|member| set.started(member));
    set.arrived("t", 1, None, now);
    set.is_server("t");
    ["c", "b", "a"].iter().for_each(|member| set.arrived(member, 2, None, now));
    let reason = "rank 2 (s) was killed";
    assert_eq!(step(&mut set, now), form(&[("a", 2), ("b", 2), ("c", 2), ("t", 1)], reason));
    // Servers are not enough for a generation.
    for member in ["a", "b"] {
        set.exited(member, &failed("was killed"), now);
    }
    ["c", "t"].iter().for_each(|member| set.arrived(member, 3, None, now));
    assert_waits(&mut set, now, TOO_FEW);
    // No member holds the state any more.
    set.exited("c", &failed("was killed"), now);
    assert!(matches!(act(&mut set, now), Action::ReportStateLost(left) if left == [candidate("t", 3)]));
}
