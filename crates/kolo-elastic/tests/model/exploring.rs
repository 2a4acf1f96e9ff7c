//! Exploration of a model.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use stateright::{Checker, HasDiscoveries, Model, Path, UniformChooser};

/// Orders of a job's events to try.
pub(super) enum Orders {
    All,
    /// Random ones, until they have passed through so many states. The result does not depend on the load.
    States(usize),
    /// Random ones until a property fails, which one does within far fewer states than this limit.
    UntilFound,
    /// Random ones for so long.
    Time(Duration),
}

/// Tries orders of a job's events until a property fails, and prints statistics. Returns the orders that were
/// found for properties, by their names.
pub(super) fn explore<J>(job: &J, orders: Orders) -> HashMap<&'static str, Path<J::State, J::Action>>
where
    J: Model + Clone + Debug + Send + Sync + 'static,
    J::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    J::Action: Clone + Debug + PartialEq + Send + Sync + 'static,
{
    let checker = job.clone().checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
    let checker = match orders {
        Orders::All => {
            let checker = checker.spawn_bfs().join();
            let (states, depth) = (checker.unique_state_count(), checker.max_depth());
            println!("{job:?}: {states} states, {depth} events deep");
            return checker.discoveries();
        }
        Orders::States(count) => checker.target_state_count(count),
        Orders::UntilFound => checker.target_state_count(1_000_000_000),
        Orders::Time(time) => checker.timeout(time),
    };
    let checker = checker.spawn_simulation(1, UniformChooser).join();
    let (states, depth) = (checker.state_count(), checker.max_depth());
    println!("{job:?}: {states} states, {depth} events deep");
    checker.discoveries()
}
