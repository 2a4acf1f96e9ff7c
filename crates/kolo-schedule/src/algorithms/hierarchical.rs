//! Hierarchical: uses shared memory inside each node, and sends every byte only once between nodes.
//!
//! The ranks of a node each own a chunk and add the node's contributions to it. Then each rank exchanges
//! its chunk with the ranks at the same place on the other nodes, which add the nodes' sums. Then the
//! results spread inside the nodes. For G nodes of ℓ ranks: 2(ℓ−1) messages and 2(ℓ−1)/ℓ·n bytes inside,
//! 2(G−1) messages and 2(G−1)/G·n bytes through a node's link. Each pair of nodes uses ℓ streams, so that ℓ
//! cores serve the network. The tree is kept, as long as each node holds one subtree of equal size.

use super::among_workers::among_workers;
use super::pipeline::{Stage, pipeline};
use super::steps::{longest, owned, receive, send, sources};
use crate::algorithm::{ANOTHER_OPERATION, Algorithm};
use crate::operation::Operation;
use crate::problem::Problem;
use crate::rank::Rank;
use crate::schedule::{Range, Schedule, Step};
use crate::tree::{Fold, Node, fold};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "hierarchical",
    about: "shared memory inside nodes, 2(G-1)/G bytes between G nodes of one size; keeps the tree",
    keeps_tree: true,
    adds_at_once: false,
    build: |problem| among_workers(problem, build),
};

/// Returns the size of a node, and the subtree that each node holds.
fn nodes(problem: &Problem<'_>) -> Result<(usize, Vec<Node>), &'static str> {
    let size = problem.topology.regular();
    let size = size.ok_or("it needs nodes of one size, each with consecutive ranks")?;
    if size == 1 || size == problem.world() {
        return Err("it needs several nodes, and several ranks on each");
    }
    let subtrees = subtrees(problem, size);
    Ok((size, subtrees.ok_or("it needs an equal, power-of-two number of shards on every node")?))
}

/// Returns the subtree that each node holds, if each holds one and all have the same size.
fn subtrees(problem: &Problem<'_>, size: usize) -> Option<Vec<Node>> {
    let of_node = |node: usize| {
        let nodes = (node * size..(node + 1) * size).flat_map(|rank| problem.contributions.of(Rank(rank)));
        let (first, count) = nodes.fold((None, 0), |(first, count): (Option<usize>, usize), node| {
            (first.or(Some(node.first)), count + node.count)
        });
        let first = first?;
        (count.is_power_of_two() && first.is_multiple_of(count)).then_some(Node { first, count })
    };
    let nodes: Vec<Node> = (0..problem.world() / size).map(of_node).collect::<Option<_>>()?;
    nodes.iter().all(|node| node.count == nodes[0].count).then_some(nodes)
}

fn build(problem: &Problem<'_>) -> Result<Schedule, &'static str> {
    let Operation::AllReduce = problem.operation else { return ANOTHER_OPERATION };
    let Problem { rank, len, contributions, segment, .. } = *problem;
    let (size, subtrees) = nodes(problem)?;
    let (node, place) = (rank.0 / size, rank.0 % size);
    let nodes = subtrees.len();
    let local = move |place: usize| Rank(node * size + place);
    let counterpart = move |node: usize| Rank(node * size + place);
    let neighbours = move || (1..size).map(move |distance| (place + distance) % size);
    let elsewhere = move || (1..nodes).map(move |distance| (node + distance) % nodes);

    // Chunk p belongs to the ranks at place p; each node owns a part of each of its segments.
    let chunks = owned(Range { start: 0, len }, size);
    let count = longest(&chunks, segment);
    let chunk = move |place: usize, index: usize| chunks[place].segment(index, segment);
    let chunk = &chunk;
    let part = move |node: usize, index: usize| owned(chunk(place, index), nodes)[node];
    let part = &part;

    let own_parts = contributions.of(rank).len();
    let contribute: Stage<'_> = Box::new(move |index| {
        let parts = |to: usize| {
            let ranges = (0..own_parts).map(move |part| chunk(to, index).shifted(part * len));
            ranges.filter_map(move |range| send(local(to), range))
        };
        neighbours().flat_map(parts).collect()
    });
    let inside = sources(
        (0..size).flat_map(|place| {
            let rank_there = local(place);
            (0..contributions.of(rank_there).len()).map(move |part| (rank_there, part))
        }),
        rank,
        len,
    );
    let inside_program: std::sync::Arc<[Fold]> =
        fold(&(0..size).flat_map(|place| contributions.of(local(place)).to_vec()).collect::<Vec<_>>()).into();
    let add_inside: Stage<'_> = Box::new(move |index| {
        let range = chunk(place, index);
        if range.len == 0 {
            return Vec::new();
        }
        let (sources, program) = (inside.clone(), inside_program.clone());
        let add = Step::Reduce { range, sources, program, complete: false };
        let spread = elsewhere().filter_map(|to| send(counterpart(to), part(to, index)));
        std::iter::once(add).chain(spread).collect()
    });
    let between = sources((0..nodes).map(|node| (counterpart(node), 0)), rank, len);
    let between_program: std::sync::Arc<[Fold]> = fold(&subtrees).into();
    let add_between: Stage<'_> = Box::new(move |index| {
        let range = part(node, index);
        if range.len == 0 {
            return Vec::new();
        }
        let (sources, program) = (between.clone(), between_program.clone());
        let add = Step::Reduce { range, sources, program, complete: true };
        let spread = elsewhere().filter_map(|to| send(counterpart(to), range));
        std::iter::once(add).chain(spread).collect()
    });
    let fetch_between: Stage<'_> = Box::new(move |index| {
        let fetch = elsewhere().filter_map(|from| receive(counterpart(from), part(from, index)));
        let spread = neighbours().filter_map(|to| send(local(to), chunk(place, index)));
        fetch.chain(spread).collect()
    });
    let fetch_inside: Stage<'_> = Box::new(move |index| {
        neighbours().filter_map(|from| receive(local(from), chunk(from, index))).collect()
    });
    let stages = [(0, contribute), (1, add_inside), (2, add_between), (3, fetch_between), (4, fetch_inside)];
    Ok(Schedule { steps: pipeline(count, &stages) })
}
