//! What a collective does, as far as its messages are concerned.

use std::sync::Arc;

use crate::rank::Rank;
use crate::schedule::Range;

/// How a buffer divides into one chunk a rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Chunks {
    /// Equal chunks: the length is a multiple of the number of ranks.
    Equal,
    /// These many elements for each rank, the same list on all ranks.
    Varied(Arc<[usize]>),
}

impl Chunks {
    /// The chunks of `len` elements on `world` ranks.
    pub fn ranges(&self, len: usize, world: usize) -> Vec<Range> {
        let mut start = 0;
        (0..world)
            .map(|rank| {
                let len = match self {
                    Chunks::Equal => len / world,
                    Chunks::Varied(counts) => counts[rank],
                };
                start += len;
                Range { start: start - len, len }
            })
            .collect()
    }
}

/// A message between two ranks, as one of them names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// The other rank.
    pub peer: Rank,
    /// Where in this rank's buffer.
    pub range: Range,
}

/// What a collective does. Buffers are used in place, except by all-to-all.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Every rank ends with the sum of all contributions.
    AllReduce,
    /// Rank r ends with the sum of everybody's chunk r, in its own chunk r; the rest is unspecified.
    ReduceScatter(Chunks),
    /// Every rank ends with chunk r of rank r, for all r.
    AllGather(Chunks),
    /// Every rank ends with the root's buffer.
    Broadcast(Rank),
    /// The root ends with the sum; the others' buffers are unspecified.
    Reduce(Rank),
    /// The root ends with chunk r of rank r; the others hold their chunk alone, at the start of their buffers.
    Gather(Rank),
    /// Rank r ends with the root's chunk r, at the start of its buffer; the root leaves it where it is.
    Scatter(Rank),
    /// Rank r gets everybody's chunk r. A buffer holds first what is received, in rank order, then what is sent.
    AllToAll {
        /// Elements sent to each rank.
        send: Arc<[usize]>,
        /// Elements received from each rank.
        receive: Arc<[usize]>,
    },
    /// Messages between some ranks, sent and received at once.
    Exchange {
        /// What this rank sends.
        send: Arc<[Message]>,
        /// What it receives; two messages from one rank are taken in the order in which it lists them.
        receive: Arc<[Message]>,
    },
}

impl Operation {
    /// Its name, as on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Operation::AllReduce => "all-reduce",
            Operation::ReduceScatter(_) => "reduce-scatter",
            Operation::AllGather(_) => "all-gather",
            Operation::Broadcast(_) => "broadcast",
            Operation::Reduce(_) => "reduce",
            Operation::Gather(_) => "gather",
            Operation::Scatter(_) => "scatter",
            Operation::AllToAll { .. } => "all-to-all",
            Operation::Exchange { .. } => "exchange",
        }
    }

    /// The one rank that gives or gets all, where there is one.
    pub fn root(&self) -> Option<Rank> {
        match self {
            Operation::Broadcast(root)
            | Operation::Reduce(root)
            | Operation::Gather(root)
            | Operation::Scatter(root) => Some(*root),
            _ => None,
        }
    }

    /// Whether it adds, so that the order of additions matters.
    pub fn adds(&self) -> bool {
        matches!(self, Operation::AllReduce | Operation::ReduceScatter(_) | Operation::Reduce(_))
    }
}
