//! Recursive doubling: in round k ranks at distance 2ᵏ exchange everything they have.
//!
//! Cost of an all-reduce of n bytes on N = 2ᵏ ranks: log₂N messages, log₂N·n bytes and as many additions
//! per rank. That is half the latency of halving-doubling, for short messages. Other N use blocks of powers
//! of two, one after another, which costs up to log₂N messages more. Keeps the tree, as long as each rank
//! contributes one subtree of equal size. All-gather, N = 2ᵏ: log₂N messages, (N−1)/N·n bytes.

use super::among_workers::among_workers;
use super::blocks::{blocks, place};
use super::steps::{add_in_order, segments};
use crate::algorithm::{ANOTHER_OPERATION, Algorithm};
use crate::operation::{Chunks, Operation};
use crate::problem::Problem;
use crate::rank::Rank;
use crate::schedule::{Range, Schedule, Step};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "recursive-doubling",
    about: "log2 N messages, log2 N times the bytes; any N; keeps the tree; for short messages",
    keeps_tree: true,
    adds_at_once: false,
    build: |problem| among_workers(problem, build),
};

fn build(problem: &Problem<'_>) -> Result<Schedule, &'static str> {
    match problem.operation {
        Operation::AllReduce => problem.one_subtree_each().map(|()| all_reduce(problem)),
        Operation::AllGather(Chunks::Equal) if problem.world().is_power_of_two() => Ok(all_gather(problem)),
        Operation::AllGather(_) => {
            Err("its all-gather needs a world size that is a power of two, and equal chunks")
        }
        _ => ANOTHER_OPERATION,
    }
}

fn all_reduce(problem: &Problem<'_>) -> Schedule {
    let Problem { rank, len, segment, .. } = *problem;
    let blocks = blocks(problem.world());
    let (number, at) = place(&blocks, rank.0);
    let (own, largest) = (blocks[number], blocks[0]);
    let whole = Range { start: 0, len };
    // Sends copies, because the sum overwrites the contribution, perhaps before all peers have read it.
    let send = |to: usize, range: Range| Step::Send { to: Rank(to), range, copied: true };

    let mut steps = Vec::new();
    for bit in 0..own.size.ilog2() {
        let peer = own.first + (at ^ 1 << bit);
        let complete = blocks.len() == 1 && 2 << bit == own.size;
        for range in segments(whole, segment) {
            steps.push(send(peer, range));
            steps.push(add_in_order(rank, Rank(peer), range, complete));
        }
    }
    for range in segments(whole, segment) {
        if let Some(smaller) = blocks.get(number + 1) {
            let peer = Rank(smaller.first + at % smaller.size);
            steps.push(add_in_order(rank, peer, range, number == 0));
        }
        // The largest block gets the whole sum; the other blocks send their sums up and receive the whole.
        if let Some(larger) = number.checked_sub(1).map(|number| blocks[number]) {
            let places = (at..larger.size).step_by(own.size);
            steps.extend(places.map(|place| send(larger.first + place, range)));
        }
    }
    for range in segments(whole, segment) {
        if number > 0 {
            steps.push(Step::Receive { from: Rank(largest.first + at), range });
        } else {
            let waiting = blocks[1..].iter().filter(|block| at < block.size);
            steps.extend(waiting.map(|block| send(block.first + at, range)));
        }
    }
    Schedule { steps }
}

fn all_gather(problem: &Problem<'_>) -> Schedule {
    let Problem { rank, len, segment, .. } = *problem;
    let each = len / problem.world();
    // After round k a rank holds the chunks of the 2ᵏ ranks that differ from it in the k lowest bits.
    let block = |rank: usize, size: usize| Range { start: rank / size * size * each, len: size * each };
    let mut steps = Vec::new();
    for bit in 0..problem.world().ilog2() {
        let peer = Rank(rank.0 ^ 1 << bit);
        let (own, other) = (block(rank.0, 1 << bit), block(peer.0, 1 << bit));
        steps.extend(segments(own, segment).map(|range| Step::Send { to: peer, range, copied: false }));
        steps.extend(segments(other, segment).map(|range| Step::Receive { from: peer, range }));
    }
    Schedule { steps }
}
