//! Hierarchical: uses shared memory inside each node, and sends every byte only once between nodes.
//!
//! The ranks of a node each own a chunk and add the node's contributions to it. Then each rank exchanges
//! its chunk with the ranks at the same place on the other nodes, which add the nodes' sums. Then the
//! results spread inside the nodes. For G nodes of ℓ ranks: 2(ℓ−1) messages and 2(ℓ−1)/ℓ·n bytes inside,
//! 2(G−1) messages and 2(G−1)/G·n bytes through a node's link. Each pair of nodes uses ℓ streams, so that ℓ
//! cores serve the network. The tree is kept, as long as each node holds one subtree of equal size.
//!
//! A sum for readers: (G−1)/G·n bytes through a node's link, where *direct* sends ℓ times as many.

use super::among_workers::among_workers;
use super::owned_by_readers::OwnedByReaders;
use super::pipeline::{Stage, pipeline};
use super::steps::{Sum, add_and_send, longest, others, owned, receive, send, sources};
use crate::algorithm::{ANOTHER_OPERATION, Algorithm};
use crate::operation::Operation;
use crate::problem::Problem;
use crate::rank::Rank;
use crate::readers::ReadBlock;
use crate::schedule::{Range, Schedule};
use crate::tree::{Node, fold};

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
    match problem.operation {
        Operation::AllReduce => all_reduce(problem),
        Operation::ReduceToReaders(blocks) => reduce_to_readers(problem, blocks),
        _ => ANOTHER_OPERATION,
    }
}

/// Returns the contributions of a node.
fn inside(problem: &Problem<'_>, size: usize) -> Sum {
    let Problem { rank, len, contributions, .. } = *problem;
    let first = rank.0 / size * size;
    let ranks = || (first..first + size).map(Rank);
    let parts = ranks().flat_map(|rank| (0..contributions.of(rank).len()).map(move |part| (rank, part)));
    let nodes: Vec<Node> = ranks().flat_map(|rank| contributions.of(rank).to_vec()).collect();
    (sources(parts, rank, len), fold(&nodes).into())
}

fn all_reduce(problem: &Problem<'_>) -> Result<Schedule, &'static str> {
    let Problem { rank, len, contributions, segment, .. } = *problem;
    let (size, subtrees) = nodes(problem)?;
    let (node, place) = (rank.0 / size, rank.0 % size);
    let nodes = subtrees.len();
    let local = move |place: usize| Rank(node * size + place);
    let counterpart = move |node: usize| Rank(node * size + place);
    let neighbors = move || (1..size).map(move |distance| (place + distance) % size);
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
        neighbors().flat_map(parts).collect()
    });
    let inside = inside(problem, size);
    let add_inside: Stage<'_> = Box::new(move |index| {
        let spread = elsewhere().filter_map(|to| send(counterpart(to), part(to, index)));
        add_and_send(chunk(place, index), &inside, false, spread)
    });
    let between: Sum =
        (sources((0..nodes).map(|node| (counterpart(node), 0)), rank, len), fold(&subtrees).into());
    let add_between: Stage<'_> = Box::new(move |index| {
        let range = part(node, index);
        add_and_send(range, &between, true, elsewhere().filter_map(|to| send(counterpart(to), range)))
    });
    let fetch_between: Stage<'_> = Box::new(move |index| {
        let fetch = elsewhere().filter_map(|from| receive(counterpart(from), part(from, index)));
        let spread = neighbors().filter_map(|to| send(local(to), chunk(place, index)));
        fetch.chain(spread).collect()
    });
    let fetch_inside: Stage<'_> = Box::new(move |index| {
        neighbors().filter_map(|from| receive(local(from), chunk(from, index))).collect()
    });
    let stages = [(0, contribute), (1, add_inside), (2, add_between), (3, fetch_between), (4, fetch_inside)];
    Ok(Schedule { steps: pipeline(count, &stages) })
}

/// Each rank adds, for the rank at its place on every node, the contributions of its own node, one node after
/// another, beginning with the next one; so all links are busy at once. The owner adds the nodes' sums.
fn reduce_to_readers(problem: &Problem<'_>, blocks: &[ReadBlock]) -> Result<Schedule, &'static str> {
    let Problem { rank, len, contributions, segment, .. } = *problem;
    let (size, subtrees) = nodes(problem)?;
    let (node, place, nodes) = (rank.0 / size, rank.0 % size, subtrees.len());
    let counterpart = move |node: usize| Rank(node * size + place);
    let owned = &OwnedByReaders::new(blocks, problem.world(), segment);
    // Turn t is about segments t / nodes of the ranks of one node; this node's own are the last.
    let target = move |turn: usize| (node + 1 + turn) % nodes;
    let last_turn = move |turn: usize| (turn % nodes == nodes - 1).then_some(turn / nodes);

    let own_parts = contributions.of(rank).len();
    let contribute: Stage<'_> = Box::new(move |turn| {
        let parts = |to: usize| {
            let range = owned.segment(Rank(target(turn) * size + to), turn / nodes);
            let ranges = (0..own_parts).map(move |part| range.shifted(part * len));
            ranges.filter_map(move |range| send(Rank(node * size + to), range))
        };
        (1..size).map(|distance| (place + distance) % size).flat_map(parts).collect()
    });
    let inside = inside(problem, size);
    let add_inside: Stage<'_> = Box::new(move |turn| {
        let owner = counterpart(target(turn));
        let range = owned.segment(owner, turn / nodes);
        let hand_over = if owner == rank { None } else { send(owner, range) };
        add_and_send(range, &inside, false, hand_over)
    });
    let between: Sum =
        (sources((0..nodes).map(|node| (counterpart(node), 0)), rank, len), fold(&subtrees).into());
    let add_between: Stage<'_> = Box::new(move |turn| {
        let Some(index) = last_turn(turn) else { return Vec::new() };
        let range = owned.segment(rank, index);
        let readers = others(rank, nodes * size).filter(|to| owned.reads(*to, rank, index));
        add_and_send(range, &between, true, readers.filter_map(|to| send(to, range)))
    });
    let fetch: Stage<'_> = Box::new(move |turn| {
        let Some(index) = last_turn(turn) else { return Vec::new() };
        let read = others(rank, nodes * size).filter(|owner| owned.reads(rank, *owner, index));
        read.filter_map(|from| receive(from, owned.segment(from, index))).collect()
    });
    // Between two nodes the sum of one segment leaves before the contributions to the next one.
    let stages = [(0, contribute), (2, add_between), (1, add_inside), (3, fetch)];
    Ok(Schedule { steps: pipeline(owned.rounds() * nodes, &stages) })
}
