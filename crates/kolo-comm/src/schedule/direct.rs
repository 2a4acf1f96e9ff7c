//! Direct: every rank sends the owner of a chunk its contribution; the owner adds all of them at once, in
//! the order of the tree, and sends the result to everyone.
//!
//! Cost of an all-reduce of n bytes on N ranks: 2(N−1) messages and 2(N−1)/N·n bytes a rank, the least possible.
//! Any N, any number of parts, keeps the tree. In shared memory nothing is copied before the addition.
//!
//! Long chunks are cut into segments and pipelined: while one segment is added, the next is on its way, and
//! results are fetched while they are still in the cache.

use std::sync::Arc;

use super::{Algorithm, Problem, Range, Schedule, Source, Step, owned};
use crate::rank::Rank;
use crate::tree::Contributions;

pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "direct",
    about: "2(N-1) messages, 2(N-1)/N bytes; any N; keeps the tree",
    keeps_tree: true,
    supports: |_| Ok(()),
    build: all_reduce,
};

/// All-reduce: afterwards every rank's part 0 holds the sum of all contributions.
fn all_reduce(problem: &Problem<'_>) -> Schedule {
    let chunks = owned(problem.len, problem.contributions.world());
    pipeline(problem.rank, &chunks, problem.contributions, problem.segment, true)
}

/// Reduce-scatter: afterwards chunk r of rank r's part 0 holds the sum; the rest is unspecified. Chunks are
/// equal: `len` is a multiple of the world size.
pub fn reduce_scatter(rank: Rank, len: usize, contributions: &Contributions, segment: usize) -> Schedule {
    pipeline(rank, &equal(len, contributions.world()), contributions, segment, false)
}

/// All-gather: afterwards chunk r of every rank's part 0 is what it was on rank r.
pub fn all_gather(rank: Rank, len: usize, world: usize, segment: usize) -> Schedule {
    let chunks = equal(len, world);
    let mut steps = Vec::new();
    for index in 0..segments(&chunks, segment) {
        let own = chunks[rank.0].segment(index, segment);
        steps.extend(others(rank, world).filter(|_| own.len > 0).map(|to| Step::Send {
            to,
            part: 0,
            range: own,
        }));
        // Fetching in step with offering keeps the number of untaken messages small.
        steps.extend(receive(rank, &chunks, index, segment));
    }
    Schedule { steps }
}

/// Broadcast: afterwards every rank's part 0 is the root's.
pub fn broadcast(rank: Rank, root: Rank, len: usize, world: usize, segment: usize) -> Schedule {
    let whole = Range { start: 0, len };
    let mut steps = Vec::new();
    for index in 0..len.div_ceil(segment) {
        let range = whole.segment(index, segment);
        if rank == root {
            steps.extend(others(rank, world).map(|to| Step::Send { to, part: 0, range }));
        } else {
            steps.push(Step::Receive { from: root, range });
        }
    }
    Schedule { steps }
}

/// Round i sends contributions to segment i, adds segment i−1 and fetches the results of segment i−2: between
/// two ranks contributions and results alternate in the same order at both ends.
fn pipeline(
    rank: Rank,
    chunks: &[Range],
    contributions: &Contributions,
    segment: usize,
    gather: bool,
) -> Schedule {
    let world = chunks.len();
    let order = contributions.sources();
    let source =
        |&(from, part): &(Rank, usize)| if from == rank { Source::Own(part) } else { Source::From(from) };
    let sources: Arc<[Source]> = order.iter().map(source).collect();
    let program: Arc<[_]> = contributions.program().into();
    let own_parts = contributions.of(rank).len();

    let mut steps = Vec::new();
    for round in 0..segments(chunks, segment) + 2 {
        for to in others(rank, world) {
            let range = chunks[to.0].segment(round, segment);
            if range.len > 0 {
                steps.extend((0..own_parts).map(|part| Step::Send { to, part, range }));
            }
        }
        if let Some(index) = round.checked_sub(1) {
            let range = chunks[rank.0].segment(index, segment);
            if range.len > 0 {
                let (sources, program) = (sources.clone(), program.clone());
                steps.push(Step::Reduce { range, sources, program, complete: true });
                if gather {
                    steps.extend(others(rank, world).map(|to| Step::Send { to, part: 0, range }));
                }
            }
        }
        if let Some(index) = round.checked_sub(2).filter(|_| gather) {
            steps.extend(receive(rank, chunks, index, segment));
        }
    }
    Schedule { steps }
}

fn receive(rank: Rank, chunks: &[Range], index: usize, segment: usize) -> impl Iterator<Item = Step> {
    others(rank, chunks.len())
        .map(move |from| (from, chunks[from.0].segment(index, segment)))
        .filter(|(_, range)| range.len > 0)
        .map(|(from, range)| Step::Receive { from, range })
}

/// The other ranks, each rank starting with its successor, so that not all call on rank 0 first.
fn others(rank: Rank, world: usize) -> impl Iterator<Item = Rank> {
    (1..world).map(move |distance| Rank((rank.0 + distance) % world))
}

fn segments(chunks: &[Range], segment: usize) -> usize {
    chunks.iter().map(|chunk| chunk.len.div_ceil(segment)).max().unwrap_or(0)
}

fn equal(len: usize, world: usize) -> Vec<Range> {
    let each = len / world;
    (0..world).map(|rank| Range { start: rank * each, len: each }).collect()
}
