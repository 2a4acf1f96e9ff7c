//! The collectives that a user can call on a group.

use std::sync::Arc;

use kolo_rendezvous::InvalidCall;
use kolo_schedule::hash::splitmix64;
use kolo_schedule::tree::Contributions;
use kolo_schedule::{Chunks, Message, Op, Operation, Rank, ReadBlock, Readers};
use kolo_transport::CollectiveKind;

/// One collective, with all of its arguments but the data. All but all-to-all work in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collective {
    /// Every rank ends with the sum over all ranks.
    AllReduce(Op),
    /// The readers end with the sum of all ranks' parts, added in tree order (see [`kolo_schedule::tree`]).
    ///
    /// Part p of a rank's buffer, elements `p·len .. (p+1)·len`, is the rank's tree node p. Part 0
    /// receives the result; what its rank does not read is unspecified. The buffer may be longer than its
    /// parts. A reader gets the same bits, whoever else reads.
    TreeSum {
        /// The tree nodes that each rank contributes.
        contributions: Arc<Contributions>,
        /// Number of elements of one part.
        len: usize,
        /// Ranks that need the sum, or each block of it; the same on all ranks.
        readers: Readers,
    },
    /// Rank r ends with the sum of all ranks' chunk r, in its own chunk r; the rest is unspecified.
    ReduceScatter(Op, Chunks),
    /// Every rank ends with chunk r of rank r, for all r.
    AllGather(Chunks),
    /// Every rank ends with the root's buffer.
    Broadcast(Rank),
    /// The root ends with the sum over all ranks; the other ranks' buffers are unspecified.
    Reduce(Op, Rank),
    /// The root's buffer has a chunk per rank and ends with chunk r of rank r. Other buffers are one chunk.
    Gather(Rank),
    /// The root's buffer has one chunk per rank. Any other buffer is one chunk and ends with its rank's.
    Scatter(Rank),
    /// Rank r receives chunk r of every rank. The buffer holds received chunks, in rank order, then sent
    /// ones.
    AllToAll {
        /// Elements sent to each rank.
        send: Arc<[usize]>,
        /// Elements received from each rank.
        receive: Arc<[usize]>,
    },
    /// Messages between two or more ranks, sent and received at once. Only those ranks call it.
    Exchange {
        /// Messages that this rank sends.
        send: Arc<[Message]>,
        /// Messages that this rank receives. Several messages from one rank are in the order of its `send`.
        receive: Arc<[Message]>,
    },
    /// No rank continues before all ranks have called it. The buffer has one element of unspecified value.
    Barrier,
}

impl Collective {
    /// Returns the sum of all ranks' parts that every rank ends with: a [`Collective::TreeSum`].
    pub fn tree_sum(contributions: Arc<Contributions>, len: usize) -> Self {
        Collective::TreeSum { contributions, len, readers: Readers::All }
    }

    /// Returns the operation that the messages perform.
    pub fn operation(&self) -> Operation {
        match self {
            Collective::AllReduce(_) | Collective::Barrier => Operation::AllReduce,
            Collective::TreeSum { readers, .. } => match readers {
                Readers::All => Operation::AllReduce,
                Readers::Blocks(blocks) => Operation::ReduceToReaders(blocks.clone()),
            },
            Collective::ReduceScatter(_, chunks) => Operation::ReduceScatter(chunks.clone()),
            Collective::AllGather(chunks) => Operation::AllGather(chunks.clone()),
            Collective::Broadcast(root) => Operation::Broadcast(*root),
            Collective::Reduce(_, root) => Operation::Reduce(*root),
            Collective::Gather(root) => Operation::Gather(*root),
            Collective::Scatter(root) => Operation::Scatter(*root),
            Collective::AllToAll { send, receive } => {
                Operation::AllToAll { send: send.clone(), receive: receive.clone() }
            }
            Collective::Exchange { send, receive } => {
                Operation::Exchange { send: send.clone(), receive: receive.clone() }
            }
        }
    }

    /// Returns the operator that combines contributions; a sum if the collective combines none.
    pub fn op(&self) -> Op {
        match self {
            Collective::AllReduce(op) | Collective::ReduceScatter(op, _) | Collective::Reduce(op, _) => *op,
            Collective::Barrier => Op::Max,
            _ => Op::Sum,
        }
    }

    /// Name of the collective, as in errors: `all_reduce`.
    pub fn name(&self) -> &'static str {
        self.kind().name()
    }

    pub(crate) fn kind(&self) -> CollectiveKind {
        match self {
            Collective::AllReduce(_) => CollectiveKind::AllReduce,
            Collective::TreeSum { .. } => CollectiveKind::TreeSum,
            Collective::ReduceScatter(..) => CollectiveKind::ReduceScatter,
            Collective::AllGather(_) => CollectiveKind::AllGather,
            Collective::Broadcast(_) => CollectiveKind::Broadcast,
            Collective::Reduce(..) => CollectiveKind::Reduce,
            Collective::Gather(_) => CollectiveKind::Gather,
            Collective::Scatter(_) => CollectiveKind::Scatter,
            Collective::AllToAll { .. } => CollectiveKind::AllToAll,
            Collective::Exchange { .. } => CollectiveKind::Exchange,
            Collective::Barrier => CollectiveKind::Barrier,
        }
    }

    /// Returns the root, if the collective has one.
    pub fn root(&self) -> Option<Rank> {
        match self {
            Collective::Broadcast(root)
            | Collective::Reduce(_, root)
            | Collective::Gather(root)
            | Collective::Scatter(root) => Some(*root),
            _ => None,
        }
    }

    /// Returns a checksum of the readers, if only some ranks read each block.
    pub(crate) fn readers_checksum(&self) -> Option<u64> {
        let Collective::TreeSum { readers: Readers::Blocks(blocks), .. } = self else { return None };
        let words = blocks.iter().flat_map(|block| {
            [block.len, block.readers.len()].into_iter().chain(block.readers.iter().map(|reader| reader.0))
        });
        Some(words.fold(0, |sum, word| splitmix64(sum ^ word as u64)))
    }

    /// Length that all ranks must agree on: of one part, or of all chunks.
    pub(crate) fn agreed_len(&self, rank: Rank, world: usize, elements: usize) -> usize {
        match self {
            Collective::TreeSum { len, .. } => *len,
            Collective::Gather(root) | Collective::Scatter(root) if *root == rank => elements / world,
            Collective::AllToAll { .. } | Collective::Exchange { .. } => 0,
            _ => elements,
        }
    }

    /// Checks the arguments on rank `rank` of `world`, for a buffer of `elements` elements.
    ///
    /// # Errors
    ///
    /// The first argument that is invalid.
    pub fn check(&self, rank: Rank, world: usize, elements: usize) -> Result<(), InvalidCall> {
        if let Some(root) = self.root().filter(|root| root.0 >= world) {
            return Err(InvalidCall::Root { operation: self.name().into(), root, world });
        }
        match self {
            Collective::TreeSum { contributions, len, readers } => {
                let (given, parts) = (contributions.world(), || contributions.parts(rank));
                match () {
                    _ if given != world => Err(InvalidCall::Contributors { given, world }),
                    _ if elements < parts() * len => {
                        Err(InvalidCall::Parts { rank, elements, parts: parts(), len: *len })
                    }
                    _ => check_readers(readers, *len, world),
                }
            }
            Collective::ReduceScatter(_, chunks) | Collective::AllGather(chunks) => {
                check_chunks(chunks, rank, world, elements)
            }
            Collective::Gather(root) | Collective::Scatter(root) if *root == rank => {
                check_chunks(&Chunks::Equal, rank, world, elements)
            }
            Collective::AllToAll { send, receive } => check_counts(send, receive, rank, world, elements),
            Collective::Exchange { send, receive } => {
                let mut all = send.iter().chain(receive.iter());
                all.try_for_each(|message| check_message(message, rank, world, elements))?;
                check_apart(send, receive, rank)
            }
            Collective::Barrier if elements != 1 => Err(InvalidCall::Barrier { elements }),
            _ => Ok(()),
        }
    }
}

/// Checks that blocks make up a sum, and that `world` ranks have all of their readers.
fn check_readers(readers: &Readers, len: usize, world: usize) -> Result<(), InvalidCall> {
    let Readers::Blocks(blocks) = readers else { return Ok(()) };
    let sum: usize = blocks.iter().map(|block| block.len).sum();
    let absent = |block: &ReadBlock| block.readers.iter().find(|reader| reader.0 >= world).copied();
    match blocks.iter().find_map(absent) {
        Some(reader) => Err(InvalidCall::Reader { reader, world }),
        None if sum != len => Err(InvalidCall::Blocks { sum, len }),
        None => Ok(()),
    }
}

/// Checks that the chunks of `world` ranks make up a buffer.
fn check_chunks(chunks: &Chunks, rank: Rank, world: usize, elements: usize) -> Result<(), InvalidCall> {
    let Chunks::Varied(counts) = chunks else {
        let equal = elements.is_multiple_of(world);
        return if equal { Ok(()) } else { Err(InvalidCall::UnequalChunks { rank, elements, world }) };
    };
    let (chunks, sum) = (counts.len(), counts.iter().sum::<usize>());
    match () {
        _ if chunks != world => Err(InvalidCall::ChunkCount { chunks, world }),
        _ if sum != elements => Err(InvalidCall::ChunkLengths { rank, sum, elements }),
        _ => Ok(()),
    }
}

/// Checks that the sent and received chunks of an all-to-all make up a buffer.
fn check_counts(
    send: &[usize],
    receive: &[usize],
    rank: Rank,
    world: usize,
    elements: usize,
) -> Result<(), InvalidCall> {
    if send.len() != world || receive.len() != world {
        return Err(InvalidCall::Counts { world });
    }
    let (sum, sent, received) = (send.iter().chain(receive).sum::<usize>(), send[rank.0], receive[rank.0]);
    match () {
        _ if sum != elements => Err(InvalidCall::CountSum { rank, sum, elements }),
        _ if sent != received => Err(InvalidCall::OwnChunk { rank, sent, received }),
        _ => Ok(()),
    }
}

/// Checks that a message is to or from another rank and lies inside the buffer.
fn check_message(message: &Message, rank: Rank, world: usize, elements: usize) -> Result<(), InvalidCall> {
    let Message { peer, range } = *message;
    let (start, len) = (range.start, range.len);
    let inside = start.checked_add(len).is_some_and(|end| end <= elements);
    if peer.0 < world && peer != rank && inside {
        return Ok(());
    }
    Err(InvalidCall::Message { rank, peer, start, len, world, elements })
}

/// Checks that no element is both sent and received: a peer may read a sent element at any time meanwhile.
fn check_apart(send: &[Message], receive: &[Message], rank: Rank) -> Result<(), InvalidCall> {
    let of = |messages: &[Message], sent: bool| -> Vec<(usize, usize, bool)> {
        let full = messages.iter().map(|message| message.range).filter(|range| range.len > 0);
        full.map(|range| (range.start, range.start + range.len, sent)).collect()
    };
    let mut ranges = [of(send, true), of(receive, false)].concat();
    ranges.sort_unstable();
    // Ends of the sent and of the received ranges so far.
    let (mut sent_until, mut received_until) = (0, 0);
    for (start, end, sent) in ranges {
        let (own, other) =
            if sent { (&mut sent_until, received_until) } else { (&mut received_until, sent_until) };
        if start < other {
            return Err(InvalidCall::Overlap { rank, start, end: end.min(other) });
        }
        *own = end.max(*own);
    }
    Ok(())
}
