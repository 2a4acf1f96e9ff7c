//! Chooses the algorithm that is predicted to solve a problem fastest.

use crate::algorithm::Algorithm;
use crate::algorithms::ALGORITHMS;
use crate::cost::Cost;
use crate::dtype::DType;
use crate::network::Network;
use crate::problem::Problem;

/// Chosen algorithm, with the reason.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The chosen algorithm.
    pub algorithm: &'static Algorithm,
    /// Predicted seconds of every candidate, the fastest first.
    pub predicted: Vec<(&'static str, f64)>,
    /// Predicted seconds of algorithms that support the operation but run only on request.
    pub others: Vec<(&'static str, f64)>,
    /// Algorithms that were not candidates, with the reasons.
    pub excluded: Vec<(&'static str, &'static str)>,
}

impl Choice {
    /// Returns the predicted seconds of an algorithm, if it supports the operation.
    pub fn seconds(&self, algorithm: &str) -> Option<f64> {
        let found = self.predicted.iter().chain(&self.others).find(|(name, _)| *name == algorithm);
        found.map(|(_, seconds)| *seconds)
    }

    /// Returns the reason for the choice, in one line.
    pub fn reason(&self) -> String {
        let microseconds = |&(name, seconds): &(&str, f64)| format!("{name} {:.1} µs", seconds * 1e6);
        match self.predicted.as_slice() {
            [] => "asked for".into(),
            [only] => format!("the only one that can: {}", microseconds(only)),
            several => several.iter().map(microseconds).collect::<Vec<_>>().join(" < "),
        }
    }
}

/// Predictions whose ratio is below this count as equal. Among them the algorithm with the fewest messages
/// between nodes wins, because a rank then wakes up least often; then the first in the table, which
/// processes one segment while the next is in transit.
const SAME: f64 = 1.01;

/// Chooses the algorithm with the lowest predicted time among those that keep the tree.
///
/// 16-bit floats are rounded in every message, so for them only algorithms that add all contributions at
/// once are candidates: the result then does not depend on the choice.
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
