//! One-shot: every rank sends its whole contribution to all others, and every rank adds everything.
//!
//! Cost of an all-reduce of n bytes on N ranks: N−1 messages that do not wait for each other, (N−1)·n bytes
//! and as many additions per rank. It has the lowest latency, for short messages; at N = 2 it moves no more
//! bytes than other algorithms. A sum for readers: only they get the contributions to their blocks and add
//! them. Supports any N and any number of parts, and keeps the tree.

use std::sync::Arc;

use super::among_workers::among_workers;
use super::steps::{others, segments, sources};
use crate::algorithm::{ANOTHER_OPERATION, Algorithm};
use crate::operation::Operation;
use crate::problem::Problem;
use crate::rank::Rank;
use crate::readers::ranges;
use crate::schedule::{Range, Schedule, Step};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "one-shot",
    about: "one round of N-1 messages, (N-1) times the bytes; any N; keeps the tree; for short messages",
    keeps_tree: true,
    adds_at_once: true,
    build: |problem| among_workers(problem, build),
};

fn build(problem: &Problem<'_>) -> Result<Schedule, &'static str> {
    let blocks: Vec<(Range, Option<&[Rank]>)> = match problem.operation {
        Operation::AllReduce => vec![(Range { start: 0, len: problem.len }, None)],
        Operation::ReduceToReaders(blocks) => {
            ranges(blocks).map(|(range, block)| (range, Some(&*block.readers))).collect()
        }
        _ => return ANOTHER_OPERATION,
    };
    let Problem { rank, len, contributions, segment, .. } = *problem;
    let world = problem.world();
    let sources = sources(contributions.sources(), rank, len);
    let program: Arc<[_]> = contributions.program().into();
    let parts = contributions.of(rank).len();

    let mut steps = Vec::new();
    for (block, readers) in blocks {
        let reads = |reader: &Rank| readers.is_none_or(|readers| readers.binary_search(reader).is_ok());
        // Sends copies, because the sum overwrites the contribution, perhaps before all peers have read it.
        let copied = reads(&rank);
        for range in segments(block, segment) {
            for part in 0..parts {
                let range = range.shifted(part * len);
                let peers = others(rank, world).filter(reads);
                steps.extend(peers.map(|to| Step::Send { to, range, copied }));
            }
            if reads(&rank) {
                let (sources, program) = (sources.clone(), program.clone());
                steps.push(Step::Reduce { range, sources, program, complete: true });
            }
        }
    }
    Ok(Schedule { steps })
}
