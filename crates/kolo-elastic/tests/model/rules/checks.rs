//! The jobs that are explored, and tests that each part of the rules is needed.

use kolo_testing::is_thorough;
use stateright::Model;

use super::actions::Action;
use super::state::State;
use super::{Job, Rule};
use crate::generation::GenerationId;
use crate::model::exploring::{self, Orders};

/// Two launchers with a worker each: every order of events is tried.
const SMALL: Job =
    Job { rule: Rule::Majority, nodes: &[0, 1], launchers: 2, generations: 3, steps: 3, deaths: 0 };
/// Too large to try every order: the checker samples orders at random.
const LARGE: Job =
    Job { rule: Rule::Majority, nodes: &[0, 0, 1, 2, 2], launchers: 3, generations: 5, steps: 4, deaths: 1 };
/// Random orders of events of one job.
fn drawn() -> Orders {
    Orders::States(if is_thorough() { 2_000_000 } else { 40_000 })
}

/// Tries orders of events until two generations train at once or a step is repeated, and prints statistics.
/// The first result is true if that never happens, the second if the job has gone on to its end.
fn explore(job: Job, orders: Orders) -> (bool, bool) {
    let found = exploring::explore(&job, orders);
    let goes_on = found.contains_key("the job goes on");
    let wrong = found.into_iter().find(|(name, _)| *name != "the job goes on");
    if let Some((name, path)) = &wrong {
        println!("  not so: {name}");
        path.clone().into_actions().iter().for_each(|action| println!("  {action:?}"));
    }
    (wrong.is_none(), goes_on)
}

/// [`SMALL`] with this rule. The third generation takes most of the time and rarely finds what two do not.
fn small(rule: Rule) -> Job {
    Job { rule, generations: if is_thorough() { SMALL.generations } else { 2 }, ..SMALL }
}

#[test]
fn one_side_trains_with_a_majority() {
    assert_eq!(explore(small(Rule::Majority), Orders::All), (true, true));
    assert!(explore(LARGE, drawn()).0);
}

#[test]
fn one_side_trains_with_a_recording_arbiter() {
    assert_eq!(explore(small(Rule::Recorded), Orders::All), (true, true));
    assert!(explore(Job { rule: Rule::Recorded, ..LARGE }, drawn()).0);
}

#[test]
fn each_part_of_the_rules_is_needed() {
    for rule in [Rule::NoArbiter, Rule::OwnNumber, Rule::Half, Rule::MajorityOfReachable] {
        assert!(!explore(Job { rule, ..SMALL }, Orders::All).0, "{rule:?}");
    }
    assert!(!explore(Job { rule: Rule::RecordedOfWaiting, ..LARGE }, Orders::UntilFound).0);
}

/// Returns the state after these events; `None` if one of them cannot happen.
fn after(job: Job, events: impl IntoIterator<Item = Action>) -> Option<State> {
    let begin = job.init_states().into_iter().next();
    events.into_iter().try_fold(begin?, |state, event| job.next_state(&state, event))
}

/// Workers 0, 1 and 2 of five enter a generation, and workers 0 and 1 see it formed. Then the network is
/// cut: worker 2, which has not seen it, is on the side of 3 and 4. That side is a majority of all five, and
/// the other side is one of the three.
#[test]
fn an_entered_generation_may_have_been_formed_by_others() {
    let id = |number, leader| GenerationId { number, leader };
    let arrive = |worker, leader| Action::Arrive { worker, leader };
    let enter = |worker, generation| Action::Enter { worker, generation };
    let form = |worker| Action::Form { worker };
    let cut = || {
        let first = [arrive(0, 0), arrive(1, 0), arrive(2, 0), Action::Claim { leader: 0 }];
        let entered = [0, 1, 2].map(|worker| enter(worker, id(2, 0)));
        let formed = [form(0), form(1), arrive(2, 2), arrive(3, 2), arrive(4, 2)];
        first.into_iter().chain(entered).chain(formed)
    };
    let second = || {
        let entered = [2, 3, 4].map(|worker| enter(worker, id(3, 2)));
        let claimed = cut().chain([Action::Claim { leader: 2 }]).chain(entered);
        claimed.chain([2, 3, 4].map(form)).chain([Action::Step { generation: id(3, 2) }])
    };
    let first = || {
        let claimed = [arrive(0, 0), arrive(1, 0), Action::Claim { leader: 0 }];
        let entered = [enter(0, id(3, 0)), enter(1, id(3, 0)), form(0), form(1)];
        claimed.into_iter().chain(entered).chain([Action::Step { generation: id(3, 0) }])
    };
    let careless = Job { rule: Rule::MajorityOfFormed, ..LARGE };
    assert!(after(careless, second().chain(first())).is_some_and(|state| state.at_once));
    assert!(after(LARGE, cut()).is_some() && after(LARGE, second()).is_none(), "it is not granted");
    let goes_on = after(LARGE, cut().chain(first()));
    assert!(goes_on.is_some_and(|state| !state.at_once && !state.again));
}
