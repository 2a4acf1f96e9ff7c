//! Ring (Patarasuk & Yuan 2009): every rank sends to its successor only.
//!
//! In N−1 rounds each chunk travels once around the ring while contributions are added to it; in N−1 more
//! rounds the finished chunks travel around. Cost: 2(N−1) messages and 2(N−1)/N·n bytes per rank; half of
//! that for reduce-scatter and all-gather. A broadcast passes along the ring, segment by segment: N−2+m
//! messages of n/m bytes for m segments. Each chunk is added in ring order starting behind its owner. All
//! ranks therefore get the same bits, but the bits depend on N.

use super::among_workers::among_workers;
use super::steps::{owned, pair, receive, segments, send};
use crate::algorithm::{ANOTHER_OPERATION, Algorithm};
use crate::operation::Operation;
use crate::problem::Problem;
use crate::rank::Rank;
use crate::schedule::{Range, Schedule, Source, Step};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "ring",
    about: "2(N-1) messages to one neighbor, 2(N-1)/N bytes; any N; bits depend on N",
    keeps_tree: false,
    adds_at_once: false,
    build: |problem| among_workers(problem, build),
};

fn build(problem: &Problem<'_>) -> Result<Schedule, &'static str> {
    if problem.operation.adds() {
        problem.every_rank_contributes()?;
    }
    let (rank, world, len) = (problem.rank.0, problem.world(), problem.len);
    let (next, previous) = (Rank((rank + 1) % world), Rank((rank + world - 1) % world));
    let steps = match problem.operation {
        Operation::Broadcast(root) => {
            let (first, last) = (rank == root.0, next == *root);
            let pass = |range| {
                let take = (!first).then_some(Step::Receive { from: previous, range });
                let hand_on = (!last).then_some(Step::Send { to: next, range, copied: false });
                take.into_iter().chain(hand_on)
            };
            let whole = Range { start: 0, len };
            (0..len.div_ceil(problem.segment))
                .map(|index| whole.segment(index, problem.segment))
                .flat_map(pass)
                .collect()
        }
        Operation::AllGather(chunks) => gather(problem, &chunks.ranges(len, world), next, previous),
        Operation::ReduceScatter(chunks) => reduce(problem, &chunks.ranges(len, world), next, previous),
        Operation::AllReduce => {
            let chunks = owned(Range { start: 0, len }, world);
            let mut steps = reduce(problem, &chunks, next, previous);
            steps.extend(gather(problem, &chunks, next, previous));
            steps
        }
        _ => return ANOTHER_OPERATION,
    };
    Ok(Schedule { steps })
}

/// Returns the chunk that is `distance` places behind this rank on the ring.
fn behind(problem: &Problem<'_>, chunks: &[Range], distance: usize) -> Range {
    let world = chunks.len();
    chunks[(problem.rank.0 + 2 * world - distance) % world]
}

/// Sends in each round the sums of the previous round, segment by segment.
fn reduce(problem: &Problem<'_>, chunks: &[Range], next: Rank, previous: Rank) -> Vec<Step> {
    let world = chunks.len();
    let cut = |distance: usize| segments(behind(problem, chunks, distance), problem.segment);
    let mut steps: Vec<Step> = problem.fold_own().into_iter().collect();
    if world > 1 {
        steps.extend(cut(1).filter_map(|range| send(next, range)));
    }
    for round in 1..world {
        for range in cut(round + 1) {
            let complete = round == world - 1;
            let sources = [Source::From(previous), Source::Own(0)].into();
            steps.push(Step::Reduce { range, sources, program: pair(), complete });
            steps.extend(if complete { None } else { send(next, range) });
        }
    }
    steps
}

/// Passes each rank's finished chunk around the ring.
fn gather(problem: &Problem<'_>, chunks: &[Range], next: Rank, previous: Rank) -> Vec<Step> {
    let world = chunks.len();
    let cut = |distance: usize| segments(behind(problem, chunks, distance), problem.segment);
    let mut steps: Vec<Step> = Vec::new();
    if world > 1 {
        steps.extend(cut(0).filter_map(|range| send(next, range)));
    }
    for round in 1..world {
        for range in cut(round) {
            steps.extend(receive(previous, range));
            steps.extend(if round == world - 1 { None } else { send(next, range) });
        }
    }
    steps
}
