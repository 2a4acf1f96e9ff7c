//! The jobs that are explored.

use std::slice::from_ref;
use std::time::Duration;

use kolo_testing::is_thorough;
use stateright::Model;

use super::actions::Action;
use super::state::State;
use super::{Actor, Job, Part, Rule};
use crate::events::EndCause::{self, Asked, Failed};
use crate::launcher_protocol::ToFollower;
use crate::model::exploring::{self, Orders};

/// Two launchers with a worker each.
const SMALL: Job = Job {
    rule: Rule::Majority,
    nodes: &[0, 1],
    first: 2,
    has_begun: true,
    min_members: 1,
    faults: 1,
    breaks_only: false,
    hangs: true,
    without: None,
    steps: 2,
    ticks: 1,
};
/// Too large to try every order: the checker samples orders at random.
const LARGE: Job = Job { hangs: false, nodes: &[0, 0, 1, 2], faults: 4, steps: 6, ticks: 8, ..SMALL };
/// A launcher joins one that works alone.
const NEWCOMER: Job = Job { rule: Rule::Recorded, first: 1, hangs: false, ..SMALL };
/// Three launchers from the beginning.
const THREE: Job = Job { nodes: &[0, 1, 1, 2], first: 3, ..LARGE };

/// Two workers whose group has formed, and that hold no state.
const EARLY: Job = Job { has_begun: false, hangs: false, ..SMALL };

/// Random orders of events of one job: for `KOLO_MODEL_SECONDS`, or through a fixed number of states.
fn drawn() -> Orders {
    match std::env::var("KOLO_MODEL_SECONDS") {
        Ok(text) => Orders::Time(Duration::from_secs(text.parse().expect("KOLO_MODEL_SECONDS is a number"))),
        Err(_) => Orders::States(if is_thorough() { 400_000 } else { 10_000 }),
    }
}

/// Tries orders of events until a property fails, and prints statistics. Returns the name of the property.
fn explore(job: Job, orders: Orders) -> Option<&'static str> {
    let found = exploring::explore(&job, orders);
    let (name, path) = found.into_iter().next()?;
    println!("  not so: {name}: {:?}", path.last_state().settles(&job));
    path.clone().into_actions().iter().for_each(|action| println!("  {action:?}"));
    Some(name)
}

#[test]
fn one_side_trains_with_a_majority() {
    assert_eq!(explore(SMALL, Orders::All), None);
    assert_eq!(explore(LARGE, drawn()), None);
    assert_eq!(explore(THREE, drawn()), None);
}

#[test]
fn one_side_trains_with_a_recording_arbiter() {
    assert_eq!(explore(Job { rule: Rule::Recorded, ..SMALL }, Orders::All), None);
    assert_eq!(explore(Job { rule: Rule::Recorded, ..LARGE }, drawn()), None);
    assert_eq!(explore(Job { rule: Rule::Recorded, ..THREE }, drawn()), None);
}

#[test]
fn a_connection_that_breaks_costs_no_worker() {
    let breaks = Job { breaks_only: true, ticks: 0, ..SMALL };
    assert_eq!(explore(breaks, Orders::All), None);
    assert_eq!(explore(Job { nodes: LARGE.nodes, faults: 3, steps: 4, ..breaks }, drawn()), None);
    assert_eq!(explore(Job { nodes: THREE.nodes, first: 3, faults: 3, steps: 4, ..breaks }, drawn()), None);
    let without = Some(Part::ComingBack);
    assert!(explore(Job { without, ..breaks }, Orders::All).is_some());
}

#[test]
fn each_part_of_the_protocol_is_needed() {
    assert!(explore(Job { rule: Rule::NoArbiter, ..LARGE }, Orders::UntilFound).is_some());
    for part in [Part::Histories, Part::Regroup] {
        assert!(explore(Job { without: Some(part), ..SMALL }, Orders::All).is_some(), "{part:?}");
    }
    let newcomer = Job { ticks: 0, ..NEWCOMER };
    let held_state = Some(Part::HeldState);
    assert_eq!(explore(Job { without: held_state, ..newcomer }, Orders::All), Some("nobody begins anew"));
    assert_eq!(explore(newcomer, Orders::All), None);
}

/// Outcome for a launcher whose connection breaks while it joins, after these events.
fn joins_after(job: Job, events: &[Action]) -> Result<Vec<Actor>, String> {
    after(Job { breaks_only: true, ..job }, events)
}

/// The workers that are left after these events, once faults have ended.
fn after(job: Job, events: &[Action]) -> Result<Vec<Actor>, String> {
    state_after(job, events).settles(&job)
}

fn state_after(job: Job, events: &[Action]) -> State {
    let mut state = job.begun();
    for event in events {
        let mut possible = Vec::new();
        job.actions(&state, &mut possible);
        assert!(possible.contains(event), "{event:?} is none of {possible:?}");
        state.apply(&job, event.clone());
    }
    state
}

/// The leader receives the Hello of the first connection after that of the second one.
#[test]
fn late_messages_of_an_ended_connection_are_ignored() {
    let twice =
        [Action::Start(1), Action::Join(1), Action::Break(1, false), Action::Notice(1), Action::Join(1)];
    let events = [&twice[..], &[Action::Deliver(1), Action::DeliverEnded(0)]].concat();
    assert_eq!(joins_after(NEWCOMER, &events), Ok(vec![0, 1]));
}

/// The launcher publishes no view yet when the leader probes it because its first connection has ended. It
/// has connected again when the answer arrives.
#[test]
fn a_probe_because_of_one_connection_does_not_end_the_next() {
    let first = [Action::Start(1), Action::Join(1), Action::Deliver(1), Action::Break(1, false)];
    let second = [Action::DeliverEnded(0), Action::Notice(1), Action::Join(1), Action::Deliver(1)];
    let events = [&first[..], &second, &[Action::Answer(0, 0)]].concat();
    assert_eq!(joins_after(NEWCOMER, &events), Ok(vec![0, 1]));
}

/// Otherwise a generation would wait for a dead worker, whose end is never reported again, until it gives
/// up.
#[test]
fn an_arrival_after_its_workers_end_is_ignored() {
    let events = [Action::Die(0), Action::DieAfterArrival(1), Action::ReceiveLateArrival(0)];
    let job = Job { nodes: &[0, 0, 0], first: 1, faults: 2, ..SMALL };
    assert_eq!(state_after(job, &events).trains_at_once(&job), Ok(true));
    let without = Job { without: Some(Part::Ends), ..job };
    assert_eq!(state_after(without, &events).trains_at_once(&without), Ok(false));
}

/// The request to kill the worker is lost with the connection. Without a repetition the worker is never
/// killed, and its launcher waits for its end forever.
#[test]
fn a_worker_that_hangs_is_killed_though_the_request_is_lost() {
    let job = Job { faults: 2, ticks: 8, ..SMALL };
    let lost =
        [&evicted(job)[..], &[Action::Break(1, true), Action::Notice(1), Action::Answer(1, 0)]].concat();
    assert_eq!(after(job, &lost), Ok(vec![0, 1]));
    // The next leader knows which workers the last one evicted.
    let job = Job { rule: Rule::Recorded, nodes: &[0, 1, 2], first: 3, ..job };
    assert_eq!(after(job, &[&evicted(job)[..], &[Action::Crash(0)]].concat()), Ok(vec![1, 2]));
}

/// The worker of launcher 1 hangs, and the leader, launcher 0, evicts it.
fn evicted(job: Job) -> Vec<Action> {
    let mut events = vec![Action::Hang(1), Action::Leave(0)];
    let sent = |events: &[Action]| {
        let state = state_after(job, events);
        state.launchers[0].to_followers.values().any(|it| matches!(it, ToFollower::Evict { .. }))
    };
    while !sent(&events) {
        events.push(Action::TimePasses);
    }
    events
}

/// The new leader's node starts no more workers, so it need not wait for more.
#[test]
fn a_launcher_that_takes_over_knows_that_its_node_is_closed() {
    let job = Job { min_members: 2, faults: 2, ..SMALL };
    let events = [Action::Close(1, Failed), Action::Crash(0)];
    assert_eq!(state_after(job, &events).left_at_once(&job), Ok(vec![]));
    assert_eq!(state_after(job, &events[1..]).left_at_once(&job), Ok(vec![1]), "it may start others");
}

/// A worker without room ends the job on all nodes, unless some worker holds the state.
#[test]
fn a_worker_that_cannot_begin_ends_a_job_that_has_not_begun() {
    assert_eq!(explore(EARLY, Orders::All), None);
    if is_thorough() {
        assert_eq!(explore(Job { rule: Rule::Recorded, ..EARLY }, Orders::All), None);
    }
    for worker in [0, 1] {
        assert_eq!(after(EARLY, &[Action::CannotBegin(worker)]), Ok(vec![]), "worker {worker}");
        let first = state_after(EARLY, &[]).generations.keys().next().copied().unwrap();
        let begun = [Action::Step(first), Action::CannotBegin(worker)];
        assert_eq!(after(EARLY, &begun), Ok(vec![1 - worker]), "worker {worker}");
    }
    // The leader's launcher ends, and another one leads.
    let three = Job { nodes: &[0, 1, 2], first: 3, faults: 2, ..EARLY };
    assert_eq!(after(three, &[Action::CannotBegin(1), Action::Crash(0)]), Ok(vec![]));
}

/// Workers that are asked to end form a generation at once, in which they leave in good order: whether or not
/// they hold the state, and whether a worker has died before, after or not at all.
#[test]
fn a_job_that_is_asked_to_end_waits_for_no_worker() {
    let (dies, close) = (Action::Die(2), |own, cause: EndCause| Action::Close(own, cause));
    for has_begun in [true, false] {
        for cause in [Asked, Failed] {
            let job = Job { nodes: &[0, 0, 1], faults: 3, has_begun, hangs: true, ..SMALL };
            let all = [close(0, cause), close(1, cause)];
            let orders = [
                [from_ref(&dies), &all].concat(),
                [&all[..1], from_ref(&dies), &all[1..]].concat(),
                [&all[..], from_ref(&dies)].concat(),
            ];
            for events in orders {
                let trains = state_after(job, &events).trains_at_once(&job);
                assert_eq!(trains, Ok(true), "{has_begun}: {events:?}");
            }
            assert_eq!(state_after(job, &all).trains_at_once(&job), Ok(true));
        }
    }
}

/// Two of three workers are too few. If the launcher of one ends it because the third one has failed, both
/// save the work before. If its launcher was asked to end, others may come in its place.
#[test]
fn too_few_workers_save_the_work_while_all_of_them_live() {
    let job = Job { nodes: &[0, 0, 1], faults: 2, min_members: 3, ..SMALL };
    for (own, cause, left) in [(0, Failed, vec![]), (0, Asked, vec![1, 2]), (1, Failed, vec![0, 1, 2])] {
        let events = [Action::Close(own, cause), Action::Die(0)];
        assert_eq!(state_after(job, &events).left_at_once(&job), Ok(left), "launcher {own}, {cause:?}");
    }
    let of_follower = Job { nodes: &[0, 1, 1], ..job };
    let events = [Action::Close(1, Failed), Action::Die(1)];
    assert_eq!(state_after(of_follower, &events).left_at_once(&of_follower), Ok(vec![]));
    let job = Job { faults: 3, ..job };
    let events = [Action::Close(0, Asked), Action::Close(1, Asked), Action::Die(0)];
    assert_eq!(state_after(job, &events).left_at_once(&job), Ok(vec![]), "all are asked to end");
}

/// The arbiter has granted a generation, and no worker has learned of it.
#[test]
fn a_grant_that_was_never_announced_blocks_no_later_one() {
    let job = Job { rule: Rule::Recorded, ..SMALL };
    let granted = [Action::Die(0), Action::Leave(1), Action::Deliver(1), Action::LoseAnswer(0, 0)];
    assert_eq!(after(Job { faults: 4, ..job }, &[&granted[..], &[Action::Crash(0)]].concat()), Ok(vec![1]));
}
