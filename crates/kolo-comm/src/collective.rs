//! What a user can ask of a group, with everything but the data.

use std::sync::Arc;

use strum::{EnumDiscriminants, FromRepr, IntoStaticStr};

use kolo_rendezvous::InvalidCall;
use kolo_schedule::tree::Contributions;
use kolo_schedule::{Chunks, Message, Op, Operation, Rank};

/// One collective, with everything but the data. All but all-to-all work in place.
#[derive(Clone, Debug, PartialEq, Eq, EnumDiscriminants)]
#[strum_discriminants(
    name(CollectiveKind),
    vis(pub(crate)),
    derive(FromRepr, IntoStaticStr),
    repr(u8),
    strum(serialize_all = "snake_case"),
    doc = "What is called, without its arguments. The order is that of the codes in messages."
)]
pub enum Collective {
    /// Every rank ends with the sum over all ranks.
    AllReduce(Op),
    /// Every rank ends with the sum of all parts of all ranks, added in tree order (see
    /// [`kolo_schedule::tree`]).
    ///
    /// Part p of a rank's buffer is its node p: elements `p·len .. (p+1)·len`. Part 0 takes the result. The
    /// buffer may be longer than its parts.
    TreeSum {
        /// Who contributes what.
        contributions: Arc<Contributions>,
        /// Elements of one part.
        len: usize,
    },
    /// Rank r ends with the sum of everybody's chunk r, in its own chunk r; the rest is unspecified.
    ReduceScatter(Op, Chunks),
    /// Every rank ends with chunk r of rank r, for all r.
    AllGather(Chunks),
    /// Every rank ends with the root's buffer.
    Broadcast(Rank),
    /// The root ends with the sum over all ranks; the others' buffers are unspecified.
    Reduce(Op, Rank),
    /// The root's buffer has a chunk for each rank and ends with chunk r of rank r; the others' are that
    /// chunk.
    Gather(Rank),
    /// The root's buffer has a chunk for each rank; the others' are one chunk and end with theirs.
    Scatter(Rank),
    /// Rank r gets everybody's chunk r. The buffer holds first what is received, in rank order, then what is
    /// sent.
    AllToAll {
        /// Elements sent to each rank.
        send: Arc<[usize]>,
        /// Elements received from each rank.
        receive: Arc<[usize]>,
    },
    /// Messages between two or more ranks, sent and received at once; only those ranks call it.
    #[strum_discriminants(strum(serialize = "message"))]
    Exchange {
        /// What this rank sends.
        send: Arc<[Message]>,
        /// What it receives; several messages from one rank in the order in which that one lists them.
        receive: Arc<[Message]>,
    },
    /// Nobody goes on before everybody has come. The buffer has one element, whose value is unspecified.
    Barrier,
}

impl Collective {
    /// What its messages do.
    pub fn operation(&self) -> Operation {
        match self {
            Collective::AllReduce(_) | Collective::TreeSum { .. } | Collective::Barrier => {
                Operation::AllReduce
            }
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

    /// How contributions are combined, where there are any.
    pub fn op(&self) -> Op {
        match self {
            Collective::AllReduce(op) | Collective::ReduceScatter(op, _) | Collective::Reduce(op, _) => *op,
            Collective::Barrier => Op::Max,
            _ => Op::Sum,
        }
    }

    /// Its name, as in errors: `all_reduce`.
    pub fn name(&self) -> &'static str {
        self.kind().name()
    }

    pub(crate) fn kind(&self) -> CollectiveKind {
        self.into()
    }

    /// The one rank that gives or gets all, where there is one.
    pub fn root(&self) -> Option<Rank> {
        match self {
            Collective::Broadcast(root)
            | Collective::Reduce(_, root)
            | Collective::Gather(root)
            | Collective::Scatter(root) => Some(*root),
            _ => None,
        }
    }

    /// The length that all ranks must agree on: of one part, or of all chunks.
    pub(crate) fn agreed_len(&self, rank: Rank, world: usize, elements: usize) -> usize {
        match self {
            Collective::TreeSum { len, .. } => *len,
            Collective::Gather(root) | Collective::Scatter(root) if *root == rank => elements / world,
            Collective::AllToAll { .. } | Collective::Exchange { .. } => 0,
            _ => elements,
        }
    }

    /// Refuses what is wrong by itself on rank `rank` of `world`, with a buffer of so many elements.
    ///
    /// # Errors
    ///
    /// What is wrong.
    pub fn check(&self, rank: Rank, world: usize, elements: usize) -> Result<(), InvalidCall> {
        if let Some(root) = self.root().filter(|root| root.0 >= world) {
            return Err(InvalidCall::Root { operation: self.name().into(), root, world });
        }
        match self {
            Collective::TreeSum { contributions, len } => {
                let (given, parts) = (contributions.world(), || contributions.parts(rank));
                match () {
                    _ if given != world => Err(InvalidCall::Contributors { given, world }),
                    _ if elements < parts() * len => {
                        Err(InvalidCall::Parts { rank, elements, parts: parts(), len: *len })
                    }
                    _ => Ok(()),
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

/// Whether chunks for `world` ranks make up a buffer.
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

/// Whether what an all-to-all sends and receives makes up a buffer.
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

/// Whether a message is to or from another rank, and lies inside the buffer.
fn check_message(message: &Message, rank: Rank, world: usize, elements: usize) -> Result<(), InvalidCall> {
    let Message { peer, range } = *message;
    let (start, len) = (range.start, range.len);
    let inside = start.checked_add(len).is_some_and(|end| end <= elements);
    if peer.0 < world && peer != rank && inside {
        return Ok(());
    }
    Err(InvalidCall::Message { rank, peer, start, len, world, elements })
}

/// Whether nothing is received into elements that are sent: a peer may read them at any time meanwhile.
fn check_apart(send: &[Message], receive: &[Message], rank: Rank) -> Result<(), InvalidCall> {
    let of = |messages: &[Message], sent: bool| -> Vec<(usize, usize, bool)> {
        let full = messages.iter().map(|message| message.range).filter(|range| range.len > 0);
        full.map(|range| (range.start, range.start + range.len, sent)).collect()
    };
    let mut ranges = [of(send, true), of(receive, false)].concat();
    ranges.sort_unstable();
    // Where the ranges so far of each kind end.
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

impl CollectiveKind {
    pub(crate) fn name(self) -> &'static str {
        self.into()
    }
}
