//! Exploration of a model.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use stateright::{Checker, HasDiscoveries, Model, Path, UniformChooser};

/// Tries orders of a job's events until a property fails, and prints statistics: all orders, or random ones
/// for a time. Returns the orders that were found for properties, by their names.
pub(super) fn explore<J>(
    job: &J,
    drawing: Option<Duration>,
) -> HashMap<&'static str, Path<J::State, J::Action>>
where
    J: Model + Clone + Debug + Send + Sync + 'static,
    J::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    J::Action: Clone + Debug + PartialEq + Send + Sync + 'static,
{
    let checker = job.clone().checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
    let (found, states, depth) = match drawing {
        None => {
            let checker = checker.spawn_bfs().join();
            (checker.discoveries(), checker.unique_state_count(), checker.max_depth())
        }
        Some(time) => {
            let checker = checker.timeout(time).spawn_simulation(1, UniformChooser).join();
            (checker.discoveries(), checker.state_count(), checker.max_depth())
        }
    };
    println!("{job:?}: {states} states, {depth} events deep");
    found
}
