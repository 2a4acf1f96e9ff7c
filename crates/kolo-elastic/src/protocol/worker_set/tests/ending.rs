//! Tests of the ends of a job: by a signal, with too few members, without the state, or before it begins.

use super::*;
use crate::events::{EndCause, Obstacle};

fn obstacle() -> Obstacle {
    Obstacle { reason: "node 1: there is no room".into(), is_input: false }
}

fn cannot_begin() -> MemberExit {
    MemberExit::CannotBegin { how: "exited with code 1".into(), obstacle: obstacle() }
}

fn abandon() -> Decision {
    Decision::new(Action::Abandon(obstacle()), "a worker cannot begin")
}

/// A worker has failed, and the launcher ends the others.
#[test]
fn a_job_with_a_failed_worker_does_not_begin() {
    let now = Instant::now();
    let mut set = WorkerSet::new(POLICY, now);
    ["a", "b", "c"].iter().for_each(|member| set.started(member));
    ["a", "b"].iter().for_each(|member| set.arrived(member, 1, None, now));
    set.close(EndCause::Failed);
    set.exited("c", &failed("was killed"), now);
    assert_waits(&mut set, now, "the job ends before it begins");
    // The workers of a job that has begun form another generation, in which they save the work.
    let mut set = participating(3, now);
    set.close(EndCause::Failed);
    set.exited("2", &failed("exited with code 1"), now);
    ["0", "1"].iter().for_each(|member| set.arrived(member, 2, None, now));
    assert_eq!(step(&mut set, now), form(&[("0", 2), ("1", 2)], "rank 2 (2) exited with code 1"));
}

/// Members without the state wait for nothing but their assignment: in it they find that they are asked to
/// leave.
#[test]
fn a_job_that_is_asked_to_end_waits_for_nobody() {
    let now = Instant::now();
    // Before the first generation, with and without a death.
    for dies in [true, false] {
        let mut set = WorkerSet::new(POLICY, now);
        ["a", "b", "c"].iter().for_each(|member| set.started(member));
        ["a", "b"].iter().for_each(|member| set.arrived(member, 1, None, now));
        set.close(EndCause::Asked);
        assert_waits(&mut set, now, NOT_STARTED);
        let members = match dies {
            true => {
                set.exited("c", &failed("was killed"), now);
                &[("a", 1), ("b", 1)][..]
            }
            false => {
                set.arrived("c", 1, None, now);
                &[("a", 1), ("b", 1), ("c", 1)]
            }
        };
        assert_eq!(step(&mut set, now), form(members, "the job begins"));
    }
    let mut set = WorkerSet::new(POLICY, now);
    ["a", "b"].iter().for_each(|member| set.started(member));
    set.arrived("a", 1, None, now);
    set.close(EndCause::Asked);
    set.exited("b", &failed("was killed"), now);
    assert!(matches!(act(&mut set, now), Action::GiveUp(ends) if ends.others == [candidate("a", 1)]));

    // In the first generation and in a later one, with a death before and without, and in either order.
    for (generation, dies, asked_first) in
        [(1, true, false), (1, true, true), (1, false, true), (2, true, false), (2, false, true)]
    {
        let mut set = participating(4, now);
        for number in 2..=generation {
            (0..4).for_each(|member| set.arrived(&member.to_string(), number, None, now));
            assert!(matches!(act(&mut set, now), Action::FormGeneration(_)));
        }
        if asked_first {
            set.close(EndCause::Asked);
        }
        if dies {
            set.exited("3", &failed("was killed"), now);
        }
        set.close(EndCause::Asked);
        let rest = 3 + usize::from(!dies);
        (0..rest).for_each(|member| set.arrived(&member.to_string(), generation + 1, None, now));
        let next = act(&mut set, now);
        assert!(matches!(&next, Action::FormGeneration(members) if members.len() == rest), "{next:?}");
    }
}

#[test]
fn a_job_ends_with_a_member_that_cannot_begin() {
    let now = Instant::now();
    // The member has not arrived, or is unknown because its launcher has just joined.
    for known in [true, false] {
        let mut set = WorkerSet::new(POLICY, now);
        ["a", "b"].iter().for_each(|member| set.started(member));
        if known {
            set.started("c");
        }
        set.exited("c", &cannot_begin(), now);
        assert_waits(&mut set, now, NOBODY);
        set.arrived("a", 1, None, now);
        assert_eq!(step(&mut set, now), abandon());
    }
    // It forms the first group, before any member holds the state.
    let mut set = participating(3, now);
    set.exited("2", &cannot_begin(), now);
    set.arrived("0", 2, None, now);
    assert_ends_generation(&mut set, now);
    assert_waits(&mut set, now, NOT_BACK);
    set.arrived("1", 2, None, now);
    assert_eq!(step(&mut set, now), abandon());
}

/// Workers of one node are started with `--shard optimizer`, which forms a fixed group, and those of the
/// other without it. Both would wait for the others until one side gives up.
#[test]
fn a_job_ends_if_some_workers_form_a_fixed_group_and_others_are_members() {
    let now = Instant::now();
    for (fixed, other, nodes) in
        [("node1/0.0", "node0/0.0", ["node 1", "node 0"]), ("node0/0.0", "node1/0.0", ["node 0", "node 1"])]
    {
        let mut set = WorkerSet::new(POLICY, now);
        [fixed, other].iter().for_each(|member| set.started(member));
        set.fixed(fixed, "`--shard optimizer`");
        assert_waits(&mut set, now, NOBODY);
        set.arrived(other, 1, None, now);
        let Action::Abandon(obstacle) = act(&mut set, now) else { panic!("it waits") };
        let [fixed, other] = nodes;
        let parts = [&format!("{fixed}: its `--shard optimizer` needs all workers"), other];
        assert!(
            obstacle.is_input && parts.iter().all(|part| obstacle.reason.contains(*part)),
            "{obstacle:?}"
        );
    }
    // All workers form the fixed group: the coordinator has nothing to decide.
    let mut set = WorkerSet::new(POLICY, now);
    ["a", "b"].iter().for_each(|member| set.started(member));
    ["a", "b"].iter().for_each(|member| set.fixed(member, "`--shard optimizer`"));
    assert_waits(&mut set, now + POLICY.start_timeout, NOBODY);
}

/// A program that says nothing of its group: the user learns where to look.
#[test]
fn nodes_none_of_whose_workers_arrive_may_have_another_command() {
    let now = Instant::now();
    let arrived = |members: &[&str]| {
        let mut set = WorkerSet::new(POLICY, now);
        ["node0/0.0", "node0/1.0", "node1/0.0", "node1/1.0"].iter().for_each(|member| set.started(member));
        members.iter().for_each(|member| set.arrived(member, 1, None, now));
        set.waits_for()
    };
    let hint = "; is the command the same on all nodes, with its --shard?";
    let missing = "workers have been started and have not arrived: node1/0.0, node1/1.0";
    assert_eq!(arrived(&[]), None);
    assert_eq!(arrived(&["node0/0.0", "node0/1.0"]), Some(format!("{missing}{hint}")));
    // The same command: one of the node's workers has arrived, or the node itself waits for its own.
    for members in [&["node0/0.0", "node0/1.0", "node1/0.0"][..], &["node0/0.0"]] {
        assert!(!arrived(members).unwrap().contains("--shard"), "{members:?}");
    }
}

#[test]
fn a_job_that_has_begun_goes_on_without_a_member_that_cannot() {
    let now = Instant::now();
    let goes_on = |set: &mut WorkerSet, reason| {
        ["0", "1"].iter().for_each(|member| set.arrived(member, 2, None, now));
        assert_eq!(step(set, now), form(&[("0", 2), ("1", 2)], reason));
    };
    let mut set = participating(3, now);
    set.exited("2", &cannot_begin(), now);
    set.holds_state("0");
    goes_on(&mut set, "rank 2 (2) exited with code 1");
    // Nothing is known of the state, but the member was to join later.
    let mut set = participating(2, now);
    set.started("new");
    set.exited("new", &cannot_begin(), now);
    set.exited("unknown", &cannot_begin(), now);
    goes_on(&mut set, "workers come or go");
    let mut set = participating(3, now);
    (0..3).for_each(|member| set.arrived(&member.to_string(), 2, None, now));
    assert!(matches!(act(&mut set, now), Action::FormGeneration(_)));
    set.exited("2", &cannot_begin(), now);
    ["0", "1"].iter().for_each(|member| set.arrived(member, 3, None, now));
    assert_eq!(step(&mut set, now), form(&[("0", 3), ("1", 3)], "rank 2 (2) exited with code 1"));
}

/// One of two nodes ends, because too few workers are left for the job: those that it still has save the work
/// together with the others.
#[test]
fn too_few_do_not_wait_for_others_until_some_of_them_are_killed() {
    let now = Instant::now();
    let mut set = WorkerSet::new(MembershipPolicy { min_members: 3, ..POLICY }, now);
    ["a", "b", "c"].iter().for_each(|member| set.started(member));
    ["a", "b", "c"].iter().for_each(|member| set.arrived(member, 1, None, now));
    assert!(matches!(act(&mut set, now), Action::FormGeneration(_)));
    set.exited("a", &failed("was killed"), now);
    set.arrived("c", 2, None, now);
    set.close_members(["b".to_string()].iter());
    assert_ends_generation(&mut set, now);
    assert_waits(&mut set, now, NOT_BACK);
    set.arrived("b", 2, None, now);
    let ends = GivingUp {
        survivors: vec![candidate("b", 2), candidate("c", 2)],
        others: Vec::new(),
        present: 2,
        waited: Duration::ZERO,
    };
    assert_eq!(set.clone().decide(now).action, Action::GiveUp(ends));
    // Without it the other may wait.
    set.exited("b", &failed("was lost with its launcher"), now);
    assert_waits(&mut set, now, TOO_FEW);
}

#[test]
fn too_few_wait_and_then_give_up() {
    let now = Instant::now();
    let mut set = participating(2, now);
    set.exited("0", &failed("was killed"), now);
    set.arrived("1", 2, None, now);
    assert_waits(&mut set, now + POLICY.too_few_timeout / 2, TOO_FEW);
    let waited = POLICY.too_few_timeout;
    let gives_up = |survivors: &[(&str, u64)], others: &[(&str, u64)], waited| {
        let of = |members: &[(&str, u64)]| members.iter().map(|(member, n)| candidate(member, *n)).collect();
        let (survivors, others, present) = (of(survivors), of(others), survivors.len() + others.len());
        Action::GiveUp(GivingUp { survivors, others, present, waited })
    };
    assert_eq!(act(&mut set, now + waited), gives_up(&[("1", 2)], &[], waited));

    // Nobody else will come once the worker that is on its way has ended.
    let mut set = participating(2, now);
    set.started("new");
    set.exited("0", &failed("was killed"), now);
    set.close(EndCause::Failed);
    assert_waits(&mut set, now, NOBODY);
    set.arrived("1", 2, None, now);
    assert_waits(&mut set, now, TOO_FEW);
    set.exited("new", &failed("was killed"), now);
    assert_eq!(act(&mut set, now), gives_up(&[("1", 2)], &[], Duration::ZERO));

    // Those who hold the state form a last group, and others after further deaths. Nobody joins them.
    let mut set = participating(4, now);
    set.policy.min_members = 5;
    ["0", "1", "2"].iter().for_each(|member| set.holds_state(member));
    set.exited("0", &failed("was killed"), now);
    ["1", "2", "3"].iter().for_each(|member| set.arrived(member, 2, None, now));
    assert_eq!(act(&mut set, now + waited), gives_up(&[("1", 2), ("2", 2)], &[("3", 2)], waited));
    set.arrived("new", 1, None, now);
    assert_waits(&mut set, now, "the job ends");
    set.exited("1", &failed("was killed"), now);
    set.arrived("2", 3, Some("rank 0 died".into()), now);
    assert_eq!(act(&mut set, now), gives_up(&[("2", 3)], &[("new", 1)], Duration::ZERO));
    assert_eq!(set.generation(), 3);
    set.exited("2", &MemberExit::Clean, now);
    assert!(set.is_finished());

    // A replacement in time.
    let mut set = participating(2, now);
    set.exited("0", &failed("was killed"), now);
    set.arrived("1", 2, None, now);
    assert_waits(&mut set, now, TOO_FEW);
    set.arrived("new", 1, None, now);
    assert_eq!(step(&mut set, now), form(&[("1", 2), ("new", 1)], "rank 0 (0) was killed"));
}

#[test]
fn newcomers_do_not_restart_a_lost_job() {
    let now = Instant::now();
    let mut set = participating(2, now);
    set.started("new");
    set.arrived("new", 1, None, now);
    set.exited("0", &failed("was killed"), now);
    set.exited("1", &failed("was killed"), now);
    assert_eq!(act(&mut set, now), Action::ReportStateLost(vec![candidate("new", 1)]));
    assert!(!set.is_finished());
}

#[test]
fn a_newcomer_may_be_too_late() {
    let now = Instant::now();
    let mut set = participating(2, now);
    set.started("new");
    assert_eq!(set.exited("0", &MemberExit::Clean, now), Some(0));
    assert!(!set.is_finished(), "1 is at work");
    assert_eq!(set.exited("1", &MemberExit::Clean, now), Some(1));
    assert!(set.is_finished());
    set.arrived("new", 1, None, now);
    assert!(matches!(act(&mut set, now), Action::ReportStateLost(_)));
    assert_eq!(set.exited("new", &failed("failed"), now), None);
    assert!(set.is_finished());
}

#[test]
fn ending_well_ends_no_generation() {
    let now = Instant::now();
    let mut set = participating(3, now);
    assert_eq!(set.exited("0", &MemberExit::Clean, now), Some(0));
    assert_waits(&mut set, now, NOBODY);
    // The others may still lose each other.
    set.arrived("1", 2, Some("rank 2 died".into()), now);
    set.arrived("2", 2, None, now);
    assert!(matches!(act(&mut set, now), Action::FormGeneration(members) if members.len() == 2));
}
