//! Computes a lower bound of an algorithm's cost from the schedules of one node. An exact count takes seconds
//! and hundreds of megabytes in a large world where every rank has a message for each other.

use crate::algorithm::Algorithm;
use crate::cost::{Cost, Traffic};
use crate::problem::Problem;
use crate::rank::Rank;
use crate::sample::some_of_node;
use crate::schedule::{Source, Step};
use crate::topology::Topology;

impl Cost {
    /// Returns the cost of what the node of the root, or of rank 0, sends to or receives from other nodes.
    /// On any network [`Cost::of`] takes at least as long.
    ///
    /// # Errors
    ///
    /// The algorithm's reason if it has no schedule for the problem.
    pub fn lower_bound(algorithm: &Algorithm, problem: &Problem<'_>) -> Result<Cost, &'static str> {
        let (topology, root) = (problem.topology, problem.operation.root().unwrap_or(Rank(0)));
        let (mut sent, mut received, mut handled) = (0.0, 0.0, 0);
        for (rank, stands_for) in some_of_node(&topology.nodes()[topology.node_of(root)]) {
            // A rank whose messages only the rank itself knows contributes nothing to the bound.
            let Some(seen) = problem.seen_by(rank) else { continue };
            // A range counts as one message, regardless of the number of its segments.
            let schedule = (algorithm.build)(&Problem { segment: problem.len.max(1), ..seen })?;
            let mut messages = 0;
            for step in &schedule.steps {
                let (out, into) = far_elements(rank, step, topology);
                sent += stands_for * out as f64;
                received += stands_for * into as f64;
                messages += usize::from(out > 0) + usize::from(into > 0);
            }
            handled = handled.max(messages);
        }
        let one_way = f64::max(sent, received);
        let far = Traffic { handled: handled as f64, one_way, busy: 0.0, ..Traffic::default() };
        Ok(Cost { far, ..Cost::default() })
    }
}

/// Returns the elements that a step sends to other nodes, and those that it receives from other nodes.
fn far_elements(rank: Rank, step: &Step, topology: &Topology) -> (usize, usize) {
    let is_far = |peer: &Rank| !topology.together(rank, *peer);
    match step {
        Step::Send { to, range, .. } if is_far(to) => (range.len, 0),
        Step::Receive { from, range } if is_far(from) => (0, range.len),
        Step::Reduce { sources, range, .. } => {
            let far = |source: &&Source| matches!(source, Source::From(from) if is_far(from));
            (0, range.len * sources.iter().filter(far).count())
        }
        Step::Send { .. } | Step::Receive { .. } | Step::Copy { .. } => (0, 0),
    }
}
