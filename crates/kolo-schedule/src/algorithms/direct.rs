//! Direct: every rank sends its contribution to the owner of each chunk. The owner adds all contributions
//! at once, in the order of the tree, and sends the result to all ranks.
//!
//! Cost of an all-reduce of n bytes on N ranks: 2(N−1) messages and 2(N−1)/N·n bytes per rank, the minimum.
//! Supports any N and any number of parts, and keeps the tree. In shared memory nothing is copied before
//! the addition. All other operations: N−1 messages, (N−1)/N·n bytes; reduce also sends n/N bytes from each
//! other rank to the root. A sum for readers: the readers of a block add equal parts of it, so one reader a
//! block is a reduce-scatter, and k readers move (k−1)/k of the block once more.
//!
//! Long chunks are cut into segments and pipelined: while one segment is added, the next is in transit, and
//! results are fetched while they are still in the cache.
//!
//! With k servers an all-reduce is that of BytePS: servers own more than workers, or everything, and
//! receive no sums. It then takes 2N(N−1)/(N²+kN−2k)·nβ, and nβ for k ≥ N ([`Ownership`]).

use std::collections::HashMap;

use super::owned_by_readers::OwnedByReaders;
use super::ownership::Ownership;
use super::pipeline::{Stage, pipeline};
use super::steps::{add_and_send, others, receive, send, sources};
use crate::algorithm::Algorithm;
use crate::operation::{Message, Operation};
use crate::problem::Problem;
use crate::rank::Rank;
use crate::schedule::{Range, Schedule, Step};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "direct",
    about: "2(N-1) messages, 2(N-1)/N bytes, with servers fewer; any N; keeps the tree",
    keeps_tree: true,
    adds_at_once: true,
    build,
};

fn build(problem: &Problem<'_>) -> Result<Schedule, &'static str> {
    let (rank, world, len) = (problem.rank, problem.world(), problem.len);
    let whole = Range { start: 0, len };
    let steps = match problem.operation {
        Operation::AllReduce => {
            let owned = Ownership::of_all(problem);
            let reads = |reader, _, _| !problem.contributions.is_server(reader);
            reduce(problem, owned.rounds(), &|owner, index| owned.segment(owner, index), &reads)
        }
        Operation::Reduce(root) => {
            let owned = Ownership::of_all(problem);
            let reads = |reader, _, _| reader == *root;
            reduce(problem, owned.rounds(), &|owner, index| owned.segment(owner, index), &reads)
        }
        Operation::ReduceScatter(chunks) => {
            let owned = Ownership::of_chunks(chunks.ranges(len, world), problem.segment);
            reduce(problem, owned.rounds(), &|owner, index| owned.segment(owner, index), &|_, _, _| false)
        }
        Operation::ReduceToReaders(blocks) => {
            let owned = OwnedByReaders::new(blocks, world, problem.segment);
            let reads = |reader, owner, index| owned.reads(reader, owner, index);
            reduce(problem, owned.rounds(), &|owner, index| owned.segment(owner, index), &reads)
        }
        Operation::AllGather(chunks) => {
            let chunks = chunks.ranges(len, world);
            let own = chunks[rank.0];
            exchange(problem, &to_all(problem, |_| own), &to_all(problem, |peer| chunks[peer.0]))
        }
        Operation::Broadcast(root) if rank == *root => exchange(problem, &to_all(problem, |_| whole), &[]),
        Operation::Broadcast(root) => exchange(problem, &[], &[Message { peer: *root, range: whole }]),
        Operation::Gather(root) | Operation::Scatter(root) => through_root(problem, *root),
        Operation::AllToAll { send, receive } => all_to_all(problem, send, receive),
        Operation::Exchange { send, receive } => exchange(problem, send, receive),
    };
    Ok(Schedule { steps })
}

/// Round i sends contributions to segment i, adds segment i−1 and fetches the results of segment i−2.
/// Between two ranks, contributions and results alternate in the same order at both ends.
///
/// `segment(owner, index)` is what an owner adds in a round; `reads(reader, owner, index)` is true if another
/// rank needs its sum.
fn reduce(
    problem: &Problem<'_>,
    rounds: usize,
    segment: &dyn Fn(Rank, usize) -> Range,
    reads: &dyn Fn(Rank, Rank, usize) -> bool,
) -> Vec<Step> {
    let Problem { rank, len, contributions, .. } = *problem;
    let world = problem.world();
    let sum = (sources(contributions.sources(), rank, len), contributions.program().into());
    let own_parts = contributions.of(rank).len();

    let contribute: Stage<'_> = Box::new(move |index| {
        let to_owner = |to: Rank| {
            let range = segment(to, index);
            (0..own_parts).filter_map(move |part| send(to, range.shifted(part * len)))
        };
        others(rank, world).flat_map(to_owner).collect()
    });
    let add: Stage<'_> = Box::new(move |index| {
        let range = segment(rank, index);
        let readers = others(rank, world).filter(|to| reads(*to, rank, index));
        add_and_send(range, &sum, true, readers.filter_map(|to| send(to, range)))
    });
    let fetch: Stage<'_> = Box::new(move |index| {
        let read = others(rank, world).filter(|owner| reads(rank, *owner, index));
        read.filter_map(|from| receive(from, segment(from, index))).collect()
    });
    pipeline(rounds, &[(0, contribute), (1, add), (2, fetch)])
}

fn to_all(problem: &Problem<'_>, range: impl Fn(Rank) -> Range) -> Vec<Message> {
    others(problem.rank, problem.world()).map(|peer| Message { peer, range: range(peer) }).collect()
}

/// Sends and takes messages, segment by segment, so that few of them are in transit at a time.
///
/// Round i sends segment i to each peer, counted over all messages to that peer, and takes segment i from
/// each. A rank that is not behind the others therefore never has more than one segment untaken by any
/// peer, and no rank waits for room, for any number of messages.
fn exchange(problem: &Problem<'_>, sent: &[Message], taken: &[Message]) -> Vec<Step> {
    let (sent, taken) = (by_peer(sent, problem.segment), by_peer(taken, problem.segment));
    let rounds = sent.iter().chain(&taken).map(|(_, segments)| segments.len()).max().unwrap_or(0);
    let offer: Stage<'_> = Box::new(|index| {
        sent.iter().filter_map(|(peer, segments)| send(*peer, *segments.get(index)?)).collect()
    });
    let take: Stage<'_> = Box::new(|index| {
        taken.iter().filter_map(|(peer, segments)| receive(*peer, *segments.get(index)?)).collect()
    });
    pipeline(rounds, &[(0, offer), (0, take)])
}

/// Returns the segments of each peer's messages, in order; the peers in the order of their first messages.
fn by_peer(messages: &[Message], segment: usize) -> Vec<(Rank, Vec<Range>)> {
    let mut peers: Vec<(Rank, Vec<Range>)> = Vec::new();
    let mut index_of = HashMap::new();
    for Message { peer, range } in messages {
        let index = *index_of.entry(peer.0).or_insert_with(|| {
            peers.push((*peer, Vec::new()));
            peers.len() - 1
        });
        let count = range.len.div_ceil(segment);
        peers[index].1.extend((0..count).map(|index| range.segment(index, segment)));
    }
    peers
}

/// In gather and scatter the root's buffer has one chunk per rank; each other rank's buffer is one chunk.
fn through_root(problem: &Problem<'_>, root: Rank) -> Vec<Step> {
    let each = if problem.rank == root { problem.len / problem.world() } else { problem.len };
    let chunk = |peer: Rank| Range { start: peer.0 * each, len: each };
    let at_root = || to_all(problem, chunk);
    let elsewhere = [Message { peer: root, range: Range { start: 0, len: each } }];
    match (problem.operation, problem.rank == root) {
        (Operation::Gather(_), true) => exchange(problem, &[], &at_root()),
        (Operation::Gather(_), false) => exchange(problem, &elsewhere, &[]),
        (_, true) => exchange(problem, &at_root(), &[]),
        (_, false) => exchange(problem, &[], &elsewhere),
    }
}

fn all_to_all(problem: &Problem<'_>, sent: &[usize], taken: &[usize]) -> Vec<Step> {
    let (rank, world) = (problem.rank, problem.world());
    let lay = |counts: &[usize], start: usize| {
        let mut next = start;
        let place = |&len: &usize| {
            next += len;
            Range { start: next - len, len }
        };
        counts.iter().map(place).collect::<Vec<_>>()
    };
    let taken = lay(taken, 0);
    let sent = lay(sent, taken.iter().map(|range| range.len).sum());
    let messages = |ranges: &[Range], peers: &mut dyn Iterator<Item = Rank>| {
        peers.map(|peer| Message { peer, range: ranges[peer.0] }).collect::<Vec<_>>()
    };
    let from = |distance: usize| Rank((rank.0 + world - distance) % world);
    let (sends, takes) =
        (messages(&sent, &mut others(rank, world)), messages(&taken, &mut (1..world).map(from)));
    let own = Step::Copy { from: sent[rank.0].start, range: taken[rank.0] };
    exchange(problem, &sends, &takes).into_iter().chain([own]).collect()
}
