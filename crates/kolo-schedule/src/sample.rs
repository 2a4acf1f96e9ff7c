//! The cost of a large world is counted on the schedules of some of its ranks.

use crate::algorithm::Algorithm;
use crate::messages::{Known, Messages};
use crate::problem::Problem;
use crate::rank::Rank;

/// All ranks are looked at if they have no more steps than this between them,
const STEPS: usize = 8192;
/// or no more than this on average, whatever the number of ranks: in trees most ranks have little to do, and
/// nobody does what another one does.
const STEPS_OF_RANK: usize = 10;
/// Otherwise whole nodes are looked at until there are so many ranks.
const SAMPLE: usize = 4;
/// Of a larger node, so many ranks are looked at.
const SAMPLE_OF_NODE: usize = 8;

/// Ranks, and for each of them the number of ranks for which it stands.
///
/// Where a rank has a message for each other rank there are as many steps as pairs of ranks: to build all
/// schedules would take longer than the collective. In such algorithms, and in those whose rounds double,
/// every rank does the same, but perhaps for the root.
pub(crate) struct Sample(Vec<(Rank, f64)>);

impl Sample {
    /// The ranks that are looked at, and their messages if none is cut into segments; the same whichever rank
    /// asks.
    ///
    /// # Errors
    ///
    /// The algorithm's reason if it has no schedule for the problem.
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

    /// All ranks.
    pub(crate) fn all(problem: &Problem<'_>) -> Self {
        Sample((0..problem.world()).map(|rank| (Rank(rank), 1.0)).collect())
    }

    /// The node of the root, which is the problem's rank, and whole nodes from the first one on.
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

    /// The messages of these ranks when nothing longer than `segment` elements is sent at once.
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

/// The schedules of some ranks, unless they have more steps than `most`.
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

/// The first and the last rank, which may be the only ones that talk to other nodes, and some between them,
/// which stand for those left out.
pub(crate) fn some_of_node(node: &[Rank]) -> Vec<(Rank, f64)> {
    if node.len() <= SAMPLE_OF_NODE {
        return node.iter().map(|&rank| (rank, 1.0)).collect();
    }
    let (inner, taken) = (node.len() - 2, SAMPLE_OF_NODE - 2);
    let between = (0..taken).map(|index| (node[1 + index * inner / taken], inner as f64 / taken as f64));
    let ends = [(node[0], 1.0), (node[node.len() - 1], 1.0)];
    ends.into_iter().chain(between).collect()
}
