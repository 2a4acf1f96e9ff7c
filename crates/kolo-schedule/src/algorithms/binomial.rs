//! Binomial tree: half of the ranks send to the other half, which then repeats this among itself.
//!
//! Cost of a broadcast or a reduce of n bytes on N ranks, for any N: ⌈log₂N⌉ messages and ⌈log₂N⌉·n bytes at
//! the root. An all-reduce is a reduce followed by a broadcast. Neighbors are added first, so the tree is
//! kept as long as each rank contributes one subtree of equal size. Rank 0 therefore computes sums and sends
//! them to the root.
//!
//! Long buffers are cut into segments, and several segments are in transit at once.

use super::among_workers::among_workers;
use super::pipeline::{Stage, pipeline};
use super::steps::{add_in_order, receive, send};
use crate::algorithm::{ANOTHER_OPERATION, Algorithm};
use crate::operation::Operation;
use crate::problem::Problem;
use crate::rank::Rank;
use crate::schedule::{Range, Schedule, Step};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "binomial",
    about: "2 log2 N messages, 2 log2 N times the bytes at the root; any N; keeps the tree",
    keeps_tree: true,
    adds_at_once: false,
    build: |problem| among_workers(problem, build),
};

/// Number of segments that may move up while the first one comes down a level.
const AHEAD: usize = 4;

/// Returns ⌈log₂N⌉.
fn depth(world: usize) -> usize {
    world.next_power_of_two().ilog2() as usize
}

fn build(problem: &Problem<'_>) -> Result<Schedule, &'static str> {
    let Problem { rank, len, segment, .. } = *problem;
    let world = problem.world();
    let whole = Range { start: 0, len };
    let cut = move |index: usize| whole.segment(index, segment);
    let up: Stage<'_> = Box::new(move |index| reduce(rank, world, cut(index)));
    let down = |root: Rank| -> Stage<'_> { Box::new(move |index| broadcast(rank, root, world, cut(index))) };
    let stages = match *problem.operation {
        Operation::Broadcast(root) => vec![(0, down(root))],
        Operation::Reduce(Rank(0)) => vec![(0, up)],
        Operation::Reduce(root) => {
            let hand_over: Stage<'_> = Box::new(move |index| match rank {
                Rank(0) => send(root, cut(index)).into_iter().collect(),
                _ if rank == root => receive(Rank(0), cut(index)).into_iter().collect(),
                _ => Vec::new(),
            });
            vec![(0, up), (depth(world), hand_over)]
        }
        // Results are taken later than they were sent, so that the next segments move up meanwhile.
        Operation::AllReduce => vec![(0, up), (AHEAD * rank.0.count_ones() as usize, down(Rank(0)))],
        _ => return ANOTHER_OPERATION,
    };
    if problem.operation.adds() {
        problem.one_subtree_each()?;
    }
    Ok(Schedule { steps: pipeline(len.div_ceil(segment), &stages) })
}

/// Toward rank 0: adds the sums of the ranks at distance 1, 2, 4, … until it is this rank's turn to send.
fn reduce(rank: Rank, world: usize, range: Range) -> Vec<Step> {
    let mut steps = Vec::new();
    for bit in 0..depth(world) {
        let distance = 1 << bit;
        if rank.0 & distance != 0 {
            steps.extend(send(Rank(rank.0 - distance), range));
            return steps;
        }
        if rank.0 + distance < world {
            let last = rank.0 == 0 && 2 * distance >= world;
            steps.push(add_in_order(rank, Rank(rank.0 + distance), range, last));
        }
    }
    steps
}

/// Away from the root: receives from its distance without the lowest set bit, sends to those at smaller bits.
fn broadcast(rank: Rank, root: Rank, world: usize, range: Range) -> Vec<Step> {
    let away = (rank.0 + world - root.0) % world;
    let at = |distance: usize| Rank((root.0 + distance) % world);
    let lowest = if away == 0 { depth(world) } else { away.trailing_zeros() as usize };
    let parent = (away > 0).then(|| receive(at(away & (away - 1)), range)).flatten();
    let children = (0..lowest).rev().map(|bit| away + (1 << bit)).filter(|child| *child < world);
    parent.into_iter().chain(children.filter_map(|child| send(at(child), range))).collect()
}
