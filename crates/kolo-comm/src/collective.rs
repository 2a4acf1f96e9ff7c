//! What a user can ask of a group, with everything but the data.

use std::sync::Arc;

use strum::{EnumDiscriminants, FromRepr, IntoStaticStr};

use kolo_rendezvous::Error;
use kolo_schedule::Op;
use kolo_schedule::Rank;
use kolo_schedule::tree::Contributions;
use kolo_schedule::{Chunks, Message, Operation};

/// One collective, with everything but the data. All but all-to-all work in place.
#[derive(Clone, Debug, EnumDiscriminants)]
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
    /// Every rank ends with the sum of all parts of all ranks, added in tree order (see [`kolo_schedule::tree`]).
    ///
    /// Part p of a rank's buffer is its node p: elements `p·len .. (p+1)·len`. Part 0 takes the result. The buffer
    /// may be longer than its parts.
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
    /// The root's buffer has a chunk for each rank and ends with chunk r of rank r; the others' are that chunk.
    Gather(Rank),
    /// The root's buffer has a chunk for each rank; the others' are one chunk and end with theirs.
    Scatter(Rank),
    /// Rank r gets everybody's chunk r. The buffer holds first what is received, in rank order, then what is sent.
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
    /// [`Error::Invalid`], in words.
    pub fn check(&self, rank: Rank, world: usize, elements: usize) -> Result<(), Error> {
        let divided = |chunks: &Chunks| match chunks {
            Chunks::Equal if !elements.is_multiple_of(world) => {
                Some(format!("{elements} elements on {rank} do not divide into {world} equal chunks"))
            }
            Chunks::Varied(counts) if counts.len() != world => {
                Some(format!("{} chunks for a group of {world} ranks", counts.len()))
            }
            Chunks::Varied(counts) if counts.iter().sum::<usize>() != elements => {
                let sum = counts.iter().sum::<usize>();
                Some(format!("chunks of {sum} elements in all, but {elements} elements on {rank}"))
            }
            _ => None,
        };
        let inside = |message: &Message| {
            message.peer.0 < world
                && message.peer != rank
                && message.range.start.checked_add(message.range.len).is_some_and(|end| end <= elements)
        };
        let problem = match self {
            _ if self.root().is_some_and(|root| root.0 >= world) => {
                let root = self.root().unwrap_or(Rank(0));
                Some(format!("{} with root {root}, but the group has {world} ranks", self.name()))
            }
            Collective::TreeSum { contributions, .. } if contributions.world() != world => {
                Some(format!("contributions of {} ranks in a group of {world}", contributions.world()))
            }
            Collective::TreeSum { contributions, len } if elements < contributions.parts(rank) * len => {
                let parts = contributions.parts(rank);
                Some(format!("{elements} elements on {rank} are less than {parts} parts of {len}"))
            }
            Collective::ReduceScatter(_, chunks) | Collective::AllGather(chunks) => divided(chunks),
            Collective::Gather(root) | Collective::Scatter(root) if *root == rank => divided(&Chunks::Equal),
            Collective::AllToAll { send, receive } => {
                let sum = send.iter().chain(receive.iter()).sum::<usize>();
                if send.len() != world || receive.len() != world {
                    Some(format!("all_to_all needs a count for each of the {world} ranks"))
                } else if sum != elements {
                    Some(format!("{sum} elements sent and received, but {elements} elements on {rank}"))
                } else if send[rank.0] != receive[rank.0] {
                    let (sent, taken) = (send[rank.0], receive[rank.0]);
                    Some(format!("{rank} sends itself {sent} elements and receives {taken}"))
                } else {
                    None
                }
            }
            Collective::Exchange { send, receive } => {
                let wrong = send.iter().chain(receive.iter()).find(|message| !inside(message));
                wrong.map(|Message { peer, range }| {
                    let (start, len) = (range.start, range.len);
                    format!(
                        "a message of {len} elements from {start} on between {rank} and {peer}: there are \
                         {world} ranks and {elements} elements, and nobody sends to itself"
                    )
                })
            }
            Collective::Barrier if elements != 1 => Some("a barrier's buffer has one element".into()),
            _ => None,
        };
        problem.map_or(Ok(()), |problem| Err(Error::Invalid(problem)))
    }
}

impl CollectiveKind {
    pub(crate) fn name(self) -> &'static str {
        self.into()
    }
}
