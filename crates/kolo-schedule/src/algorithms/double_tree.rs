//! Double binary tree (Sanders, Speck & Träff 2009): two trees, each for half of the buffer. An inner rank
//! of one tree is a leaf of the other, so every rank's link is used in both directions.
//!
//! Cost of an all-reduce of n bytes on N ranks: about 2·log₂N messages and, for long buffers in many
//! segments, 2n bytes for any N. Sums are computed along the trees, so the bits depend on N.

use super::among_workers::among_workers;
use super::pipeline::{Stage, pipeline};
use super::steps::{receive, send};
use crate::algorithm::{ANOTHER_OPERATION, Algorithm};
use crate::operation::Operation;
use crate::problem::Problem;
use crate::rank::Rank;
use crate::schedule::{Range, Schedule, Source, Step};
use crate::tree::Fold;

pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "double-tree",
    about: "2 log2 N messages, 2 times the bytes; any N; bits depend on N",
    keeps_tree: false,
    adds_at_once: false,
    build: |problem| among_workers(problem, build),
};

#[derive(Clone, Debug, PartialEq)]
struct Position {
    parent: Option<Rank>,
    /// At most two, ascending by place.
    children: Vec<Rank>,
    depth: usize,
}

/// Number of rounds between sending and taking.
const AHEAD: usize = 2;

/// Returns the parent of `place` (from 1) in the in-order binary tree over `1 ..= world`; odd places are
/// leaves.
fn parent(place: usize, world: usize) -> Option<usize> {
    let root = 1 << world.ilog2();
    let mut above = place;
    while above != root {
        let lowest = above & above.wrapping_neg();
        above = (above & !lowest) | (lowest << 1);
        // Places past the end are skipped.
        if above <= world {
            return Some(above);
        }
    }
    None
}

/// Returns the children of `place`, ascending.
fn children(place: usize, world: usize) -> impl Iterator<Item = usize> {
    let half = (place & place.wrapping_neg()) / 2;
    // Places past the end are skipped.
    let right =
        std::iter::successors(Some(half), |distance| Some(distance / 2)).take_while(|&distance| distance > 0);
    let right = right.map(move |distance| place + distance).find(|&right| right <= world);
    let left = (half > 0).then_some(place - half);
    left.into_iter().chain(right)
}

/// Returns a rank's position in the tree in which rank r has place r + 1 + shift, modulo the world size.
fn position(rank: Rank, world: usize, shift: usize) -> Position {
    let place = |rank: usize| (rank + shift) % world + 1;
    let rank_at = |place: usize| Rank((place - 1 + world - shift) % world);
    let own = place(rank.0);
    let children = children(own, world).map(rank_at).collect();
    let depth = std::iter::successors(parent(own, world), |&above| parent(above, world)).count();
    Position { parent: parent(own, world).map(rank_at), children, depth }
}

fn build(problem: &Problem<'_>) -> Result<Schedule, &'static str> {
    let Operation::AllReduce = problem.operation else { return ANOTHER_OPERATION };
    problem.every_rank_contributes()?;
    let Problem { rank, len, segment, .. } = *problem;
    let world = problem.world();
    let middle = len / 2;
    let trees = [
        (position(rank, world, 0), Range { start: 0, len: middle }),
        (position(rank, world, 1 % world), Range::between(middle, len)),
    ];
    // A rank takes every message `AHEAD` rounds after it was sent, in the order of sending. Several
    // segments are thus in transit at once, in both trees and both directions.
    let deepest = world.ilog2() as usize + 1;
    let mut stages: Vec<(usize, Stage<'_>)> = Vec::new();
    for (position, half) in &trees {
        let delay = AHEAD * (deepest - position.depth);
        stages.push((delay, Box::new(move |index| up(position, half.segment(index, segment)))));
    }
    for (position, half) in &trees {
        let delay = AHEAD * (deepest + position.depth);
        stages.push((delay, Box::new(move |index| down(position, half.segment(index, segment)))));
    }
    let mut steps: Vec<Step> = problem.fold_own().into_iter().collect();
    steps.extend(pipeline((len - middle).div_ceil(segment), &stages));
    Ok(Schedule { steps })
}

fn up(position: &Position, range: Range) -> Vec<Step> {
    if range.len == 0 {
        return Vec::new();
    }
    let mut steps = Vec::new();
    if !position.children.is_empty() {
        let children = position.children.iter().map(|&child| Source::From(child));
        let sources = std::iter::once(Source::Own(0)).chain(children).collect();
        let add = |n| [Fold::Push(n), Fold::Add];
        let program =
            std::iter::once(Fold::Push(0)).chain((1..=position.children.len()).flat_map(add)).collect();
        steps.push(Step::Reduce { range, sources, program, complete: position.parent.is_none() });
    }
    steps.extend(position.parent.and_then(|parent| send(parent, range)));
    steps
}

fn down(position: &Position, range: Range) -> Vec<Step> {
    let take = position.parent.and_then(|parent| receive(parent, range));
    take.into_iter().chain(position.children.iter().filter_map(|&child| send(child, range))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_is_reached_once_and_few_are_inside_both_trees() {
        for world in 2usize..=33 {
            for shift in [0, 1] {
                let positions: Vec<Position> =
                    (0..world).map(|rank| position(Rank(rank), world, shift)).collect();
                assert_eq!(positions.iter().filter(|position| position.parent.is_none()).count(), 1);
                let children: usize = positions.iter().map(|position| position.children.len()).sum();
                assert_eq!(children, world - 1);
                assert!(positions.iter().all(|position| position.children.len() <= 2));
                for (rank, position) in positions.iter().enumerate() {
                    let below = |child: &Rank| positions[child.0].parent == Some(Rank(rank));
                    assert!(position.children.iter().all(below), "{world}: {position:?}");
                }
            }
            let inside = |rank, shift| !position(Rank(rank), world, shift).children.is_empty();
            let both = (0..world).filter(|&rank| inside(rank, 0) && inside(rank, 1)).count();
            assert!(both <= world % 2, "{both} of {world}");
        }
    }
}
