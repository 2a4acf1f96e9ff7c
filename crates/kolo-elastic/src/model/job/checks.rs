//! What is explored.

use std::time::Duration;

use stateright::{Checker, HasDiscoveries, Model, UniformChooser};

use super::{Job, Rule};

/// Two launchers with a worker each.
const SMALL: Job = Job { rule: Rule::Majority, nodes: &[0, 1], first: 2, faults: 1, steps: 2, ticks: 1 };
/// More than can be tried in every order: many are drawn.
const LARGE: Job =
    Job { rule: Rule::Majority, nodes: &[0, 0, 1, 2], first: 2, faults: 4, steps: 6, ticks: 8 };
/// Three launchers from the beginning.
const THREE: Job = Job { nodes: &[0, 1, 1, 2], first: 3, ..LARGE };

/// Orders of events are drawn for so long for one job: seconds in `KOLO_MODEL_SECONDS`, or these.
fn drawing() -> Duration {
    let seconds = std::env::var("KOLO_MODEL_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(10))
}

/// Tries orders of events until something goes wrong; tells what was seen. Gives what went wrong.
fn explore(job: Job, all: bool) -> Option<&'static str> {
    let checker = job.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).timeout(drawing());
    let (found, states, depth) = if all {
        let checker = checker.spawn_bfs().join();
        (checker.discoveries(), checker.unique_state_count(), checker.max_depth())
    } else {
        let checker = checker.spawn_simulation(1, UniformChooser).join();
        (checker.discoveries(), checker.state_count(), checker.max_depth())
    };
    println!("{job:?}: {states} states, {depth} events deep");
    let (name, path) = found.into_iter().next()?;
    println!("  not so: {name}: {:?}", path.last_state().settles(&job));
    path.clone().into_actions().iter().for_each(|action| println!("  {action:?}"));
    Some(name)
}

#[test]
fn one_side_of_a_majority_trains() {
    assert_eq!(explore(SMALL, true), None);
    assert_eq!(explore(LARGE, false), None);
    assert_eq!(explore(THREE, false), None);
}

#[test]
fn one_side_of_those_that_are_recorded_trains() {
    assert_eq!(explore(Job { rule: Rule::Recorded, ..SMALL }, true), None);
    assert_eq!(explore(Job { rule: Rule::Recorded, ..LARGE }, false), None);
    assert_eq!(explore(Job { rule: Rule::Recorded, ..THREE }, false), None);
}

#[test]
fn without_an_arbiter_both_sides_train() {
    assert!(explore(Job { rule: Rule::Anybody, ..LARGE }, false).is_some());
}
