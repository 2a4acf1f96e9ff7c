//! Halving-doubling, nearest neighbours first (Rabenseifner 2004, with the distances turned round).
//!
//! In round k ranks at distance 2ᵏ exchange halves of what they still hold and add; then the rounds run
//! backwards and the sums spread. Cost on N = 2ᵏ ranks: 2·log₂N messages and 2(N−1)/N·n bytes a rank.
//! Because neighbours are added first, the additions are those of the tree, as long as each rank contributes
//! one subtree of equal size.

use super::{Algorithm, Problem, Range, Schedule, Source, Step, pair};
use crate::rank::Rank;
use crate::tree::{Contributions, Node};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "halving-doubling",
    about: "2 log2 N messages, 2(N-1)/N bytes; N a power of two; keeps the tree",
    keeps_tree: true,
    supports,
    build: all_reduce,
};

fn supports(contributions: &Contributions) -> Result<(), &'static str> {
    let world = contributions.world();
    if !world.is_power_of_two() {
        return Err("halving-doubling needs a world size that is a power of two");
    }
    let size = contributions.of(Rank(0)).first().map_or(0, |node| node.count);
    let equal = (0..world)
        .all(|rank| contributions.of(Rank(rank)) == [Node { first: rank * size, count: size }].as_slice());
    if equal {
        Ok(())
    } else {
        Err("halving-doubling needs an equal, power-of-two number of shards on every rank")
    }
}

fn all_reduce(problem: &Problem<'_>) -> Schedule {
    let (rank, world) = (problem.rank, problem.contributions.world());
    let mut steps = Vec::new();
    let mut kept = Range { start: 0, len: problem.len };
    let mut given = Vec::new();

    let mut distance = 1;
    while distance < world {
        let peer = Rank(rank.0 ^ distance);
        let middle = kept.start + kept.len / 2;
        let (low, high) = (Range::between(kept.start, middle), Range::between(middle, kept.end()));
        let (keep, give) = if rank.0 & distance == 0 { (low, high) } else { (high, low) };
        let lower_first = if rank < peer {
            [Source::Own(0), Source::From(peer)]
        } else {
            [Source::From(peer), Source::Own(0)]
        };
        steps.extend(segments(give, problem.segment).map(|range| Step::Send { to: peer, part: 0, range }));
        steps.extend(segments(keep, problem.segment).map(|range| Step::Reduce {
            range,
            sources: lower_first.into(),
            program: pair(),
            complete: 2 * distance == world,
        }));
        given.push((peer, keep, give));
        kept = keep;
        distance *= 2;
    }
    for (peer, keep, give) in given.into_iter().rev() {
        steps.extend(segments(keep, problem.segment).map(|range| Step::Send { to: peer, part: 0, range }));
        steps.extend(segments(give, problem.segment).map(|range| Step::Receive { from: peer, range }));
    }
    Schedule { steps }
}

/// Both ends cut a range at the same places, so a rank may send all its segments before it takes the first one
/// of the other: a message that finds no room waits until the peer, who does the same, has taken some. To
/// keep that from becoming a deadlock the number of segments a round is bounded.
fn segments(range: Range, segment: usize) -> impl Iterator<Item = Range> {
    let size = segment.max(range.len.div_ceil(super::MAX_UNTAKEN)).max(1);
    (0..range.len.div_ceil(size)).map(move |index| range.segment(index, size))
}
