//! Halving-doubling, nearest neighbors first (Rabenseifner 2004, with the distances reversed).
//!
//! In round k, ranks at distance 2ᵏ exchange halves of what they still hold and add; then the rounds run
//! backward and the sums spread. Cost on N = 2ᵏ ranks: 2·log₂N messages and 2(N−1)/N·n bytes per rank. For
//! other N, the ranks form blocks of powers of two, and each block's sum is added to that of the larger
//! block before it; that costs at most 2·log₂N messages and n bytes more. Because neighbors are added
//! first, the additions are those of the tree, as long as each rank contributes one subtree of equal size.

use super::among_workers::among_workers;
use super::blocks::{Block, blocks, place};
use super::steps::{add_in_order, segments};
use crate::algorithm::{ANOTHER_OPERATION, Algorithm};
use crate::operation::Operation;
use crate::problem::Problem;
use crate::rank::Rank;
use crate::schedule::{Range, Schedule, Step};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "halving-doubling",
    about: "2 log2 N messages, 2(N-1)/N bytes; any N; keeps the tree",
    keeps_tree: true,
    adds_at_once: false,
    build: |problem| among_workers(problem, build),
};

/// Returns a block member's range after the halvings: bit k of its place selects the half of round k.
fn held(len: usize, size: usize, place: usize) -> Range {
    let mut range = Range { start: 0, len };
    for bit in 0..size.ilog2() {
        range = halves(range)[place >> bit & 1];
    }
    range
}

fn halves(range: Range) -> [Range; 2] {
    let middle = range.start + range.len / 2;
    [Range::between(range.start, middle), Range::between(middle, range.end())]
}

fn build(problem: &Problem<'_>) -> Result<Schedule, &'static str> {
    let Operation::AllReduce = problem.operation else { return ANOTHER_OPERATION };
    problem.one_subtree_each()?;
    let Problem { rank, len, segment, .. } = *problem;
    let blocks = blocks(problem.world());
    let (number, at) = place(&blocks, rank.0);
    let own = blocks[number];
    let send = move |to: usize, range: Range| {
        let send = move |range| Step::Send { to: Rank(to), range, copied: false };
        segments(range, segment).map(send)
    };
    let take = move |from: usize, range: Range| {
        segments(range, segment).map(move |range| Step::Receive { from: Rank(from), range })
    };
    let add = move |from: usize, range: Range, complete: bool| {
        segments(range, segment).map(move |range| add_in_order(rank, Rank(from), range, complete))
    };
    // This rank's range of its block's sum goes to the ranks of the larger block that hold parts of it.
    let above = number.checked_sub(1).map(|number| blocks[number]);
    let below = blocks.get(number + 1);
    let places_above = |larger: Block| (at..larger.size).step_by(own.size);

    let mut steps = Vec::new();
    let mut given = Vec::new();
    let mut kept = Range { start: 0, len };
    for bit in 0..own.size.ilog2() {
        let peer = own.first + (at ^ 1 << bit);
        let [low, high] = halves(kept);
        let (keep, give) = if at >> bit & 1 == 0 { (low, high) } else { (high, low) };
        let complete = blocks.len() == 1 && 2 << bit == own.size;
        steps.extend(send(peer, give));
        steps.extend(add(peer, keep, complete));
        given.push((peer, keep, give));
        kept = keep;
    }
    if let Some(smaller) = below {
        steps.extend(add(smaller.first + at % smaller.size, kept, number == 0));
    }
    if let Some(larger) = above {
        let pieces = || places_above(larger).map(|place| (place, held(len, larger.size, place)));
        steps.extend(pieces().flat_map(|(place, piece)| send(larger.first + place, piece)));
        steps.extend(pieces().flat_map(|(place, piece)| take(larger.first + place, piece)));
    }
    if let Some(smaller) = below {
        steps.extend(send(smaller.first + at % smaller.size, kept));
    }
    for (peer, keep, give) in given.into_iter().rev() {
        steps.extend(send(peer, keep));
        steps.extend(take(peer, give));
    }
    Ok(Schedule { steps })
}
