//! The choice falls on the algorithm that solves a problem soonest.

use crate::algorithm::Algorithm;
use crate::algorithms::ALGORITHMS;
use crate::cost::Cost;
use crate::dtype::DType;
use crate::network::Network;
use crate::problem::Problem;

/// A decision, with its reason.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The algorithm picked.
    pub algorithm: &'static Algorithm,
    /// Seconds predicted for every algorithm that may be picked, the picked one first.
    pub predicted: Vec<(&'static str, f64)>,
    /// Seconds predicted for those that can do it, but are used only on request.
    pub others: Vec<(&'static str, f64)>,
    /// Those that are not picked, and why not.
    pub excluded: Vec<(&'static str, &'static str)>,
}

impl Choice {
    /// What an algorithm is predicted to take, if it can do it at all.
    pub fn seconds(&self, algorithm: &str) -> Option<f64> {
        let found = self.predicted.iter().chain(&self.others).find(|(name, _)| *name == algorithm);
        found.map(|(_, seconds)| *seconds)
    }

    /// Why the picked one was picked, in one line.
    pub fn reason(&self) -> String {
        let microseconds = |&(name, seconds): &(&str, f64)| format!("{name} {:.1} µs", seconds * 1e6);
        match self.predicted.as_slice() {
            [] => "asked for".into(),
            [only] => format!("the only one that can: {}", microseconds(only)),
            several => several.iter().map(microseconds).collect::<Vec<_>>().join(" < "),
        }
    }
}

/// Predictions that differ by less are the same: of these the one with the fewest messages between nodes is
/// taken, for which a rank wakes up least often; and of those the first one of the table, which goes on with
/// one segment while the next is on its way.
const SAME: f64 = 1.01;

/// Picks the algorithm that the network's costs predict to be the fastest, among those that keep the tree.
///
/// 16-bit floats are rounded in every message, so only algorithms that add all contributions at once leave
/// the result independent of the choice.
pub fn choose(problem: &Problem<'_>, dtype: DType, network: &Network) -> Choice {
    let (mut predicted, mut others, mut excluded) = (Vec::new(), Vec::new(), Vec::new());
    let adds = problem.operation.adds();
    for algorithm in ALGORITHMS {
        let (seconds, messages) = match Cost::of(algorithm, problem) {
            Ok(cost) => (network.seconds(&cost, dtype.size()), cost.far.handled),
            Err(why) => {
                excluded.push((algorithm.name, why));
                continue;
            }
        };
        if adds && !algorithm.keeps_tree {
            others.push((algorithm.name, seconds));
            excluded.push((algorithm.name, "its bits would depend on the number of ranks"));
        } else if adds && !algorithm.adds_at_once && !dtype.sums_in_itself() {
            others.push((algorithm.name, seconds));
            excluded.push((algorithm.name, "it would round 16-bit sums more than once"));
        } else {
            predicted.push((algorithm, seconds, messages));
        }
    }
    let least = predicted.iter().map(|(_, seconds, _)| *seconds).fold(f64::INFINITY, f64::min);
    let same = predicted.iter().filter(|(_, seconds, _)| *seconds <= SAME * least);
    let algorithm = same.min_by(|a, b| a.2.total_cmp(&b.2));
    let algorithm = algorithm.map_or(&ALGORITHMS[0], |(algorithm, ..)| *algorithm);
    predicted.sort_by(|a, b| a.1.total_cmp(&b.1));
    Choice {
        algorithm,
        predicted: predicted.into_iter().map(|(algorithm, seconds, _)| (algorithm.name, seconds)).collect(),
        others,
        excluded,
    }
}
