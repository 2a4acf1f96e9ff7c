//! Selects the ranks on whose schedules the cost of a large world is counted.

use crate::algorithm::Algorithm;
use crate::messages::{Known, Messages};
use crate::problem::Problem;
use crate::rank::Rank;

/// Maximum number of steps of all schedules together at which every rank is sampled.
const STEPS: usize = 8192;
/// The same limit per rank, if that is larger: in trees most ranks do little, and no two do the same.
const STEPS_OF_RANK: usize = 10;
/// Number of ranks at which the sampling of whole nodes stops.
const SAMPLE: usize = 4;
/// Number of ranks sampled from a larger node.
const SAMPLE_OF_NODE: usize = 8;

/// Ranks, each with the number of ranks that it represents.
///
/// Where every rank has a message for each other rank, the number of steps grows with the square of the
/// world size: building all schedules would take longer than the collective. In such algorithms, and in
/// those whose rounds double, every rank does the same, except perhaps the root.
pub(crate) struct Sample(Vec<(Rank, f64)>);

impl Sample {
    /// Returns the sampled ranks and their messages without segmentation; the same on all ranks.
    /// The error is the algorithm's reason if it has no schedule for the problem.
    pub(crate) fn of(algorithm: &Algorithm, problem: &Problem<'_>) -> Result<(Self, Messages), &'static str> {
        let sample = if (0..problem.world()).any(|rank| problem.seen_by(Rank(rank)).is_none()) {
            Sample(vec![(problem.rank, 1.0)])
        } else {
            let (all, most) = (Self::all(problem), STEPS.max(STEPS_OF_RANK * problem.world()));
            if let Some(known) = build(&all.0, algorithm, problem, problem.len, most)? {
                return Ok((all, Messages::of(&known, problem.topology)));
            }
            Self::some(problem)
        };
        let messages = sample.messages(algorithm, problem, problem.len)?;
        Ok((sample, messages))
    }

    pub(crate) fn all(problem: &Problem<'_>) -> Self {
        Sample((0..problem.world()).map(|rank| (Rank(rank), 1.0)).collect())
    }

    /// Returns the node of the root, which is the problem's rank, and further whole nodes in their order.
    pub(crate) fn some(problem: &Problem<'_>) -> Self {
        let (nodes, root) = (problem.topology.nodes(), problem.rank);
        let of_root = problem.topology.node_of(root);
        let mut ranks = some_of_node(&nodes[of_root]);
        if ranks.iter().all(|(rank, _)| *rank != root) {
            ranks.push((root, 1.0));
        }
        for (_, node) in nodes.iter().enumerate().filter(|(number, _)| *number != of_root) {
            if ranks.len() >= SAMPLE {
                break;
            }
            ranks.extend(some_of_node(node));
        }
        ranks.sort_by_key(|(rank, _)| *rank);
        Sample(ranks)
    }

    /// Returns the messages of these ranks if none is longer than `segment` elements.
    pub(crate) fn messages(
        &self,
        algorithm: &Algorithm,
        problem: &Problem<'_>,
        segment: usize,
    ) -> Result<Messages, &'static str> {
        let known = build(&self.0, algorithm, problem, segment, usize::MAX)?.unwrap_or_default();
        Ok(Messages::of(&known, problem.topology))
    }
}

/// Builds the schedules of some ranks; returns `None` if they have more than `most` steps.
fn build(
    ranks: &[(Rank, f64)],
    algorithm: &Algorithm,
    problem: &Problem<'_>,
    segment: usize,
    most: usize,
) -> Result<Option<Vec<Known>>, &'static str> {
    let (mut known, mut steps) = (Vec::with_capacity(ranks.len()), 0);
    for &(rank, stands_for) in ranks {
        let seen = problem.seen_by(rank).unwrap_or_else(|| problem.clone());
        let schedule = (algorithm.build)(&Problem { segment: segment.max(1), ..seen })?;
        steps += schedule.steps.len();
        if steps > most {
            return Ok(None);
        }
        known.push((rank, stands_for, schedule));
    }
    Ok(Some(known))
}

/// Returns the first and the last rank, which may be the only ones that communicate with other nodes, and
/// some ranks between them, which represent those left out.
pub(crate) fn some_of_node(node: &[Rank]) -> Vec<(Rank, f64)> {
    if node.len() <= SAMPLE_OF_NODE {
        return node.iter().map(|&rank| (rank, 1.0)).collect();
    }
    let (inner, taken) = (node.len() - 2, SAMPLE_OF_NODE - 2);
    let between = (0..taken).map(|index| (node[1 + index * inner / taken], inner as f64 / taken as f64));
    let ends = [(node[0], 1.0), (node[node.len() - 1], 1.0)];
    ends.into_iter().chain(between).collect()
}
