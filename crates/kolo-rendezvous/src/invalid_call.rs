//! Calls of collectives that are wrong independent of the other ranks' calls.

use serde::{Deserialize, Serialize};

use kolo_schedule::Rank;
use kolo_schedule::words::counted;

/// A reason why a call is wrong by itself. Nothing has been sent, so no other rank is affected. Ranks are
/// those of the group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum InvalidCall {
    /// An exchange receives into elements that it also sends.
    #[error(
        "one exchange both sends and receives elements {start} to {end} of {rank}'s buffer; give it ranges that do not overlap"
    )]
    Overlap {
        rank: Rank,
        /// First such element.
        start: usize,
        /// End (exclusive) of the first run of such elements.
        end: usize,
    },
    /// The root is no rank of the group.
    #[error("{operation} with root {root}, but the group has {}", counted(world, "rank"))]
    Root { operation: String, root: Rank, world: usize },
    /// A buffer cannot be divided into one chunk for each rank.
    #[error(
        "{elements} elements on {rank} do not divide into {world} equal chunks; use a multiple of {world}"
    )]
    UnequalChunks { rank: Rank, elements: usize, world: usize },
    /// The number of chunks differs from the number of ranks.
    #[error("{} for {}; give one for each rank", counted(chunks, "chunk"), counted(world, "rank"))]
    ChunkCount { chunks: usize, world: usize },
    /// The lengths of the chunks do not add up to the buffer's.
    #[error("the chunks have {sum} elements in all, but the buffer on {rank} has {elements}")]
    ChunkLengths { rank: Rank, sum: usize, elements: usize },
    /// The contributions to a sum in tree order do not match the group's ranks.
    #[error("there are contributions of {given} ranks, but the group has {world}; give a list for each rank")]
    Contributors { given: usize, world: usize },
    /// The buffer is shorter than the rank's parts of a sum in tree order.
    #[error("the buffer on {rank} has {elements} elements, fewer than {parts} parts of {len}")]
    Parts { rank: Rank, elements: usize, parts: usize, len: usize },
    /// The lengths of the blocks of a sum for readers do not add up to the sum's.
    #[error("the readers' blocks have {sum} elements in all, but the sum has {len}")]
    Blocks { sum: usize, len: usize },
    /// A reader of a sum is no rank of the group.
    #[error("{reader} cannot read a sum of a group of {}", counted(world, "rank"))]
    Reader { reader: Rank, world: usize },
    /// An all-to-all lacks a count of sent and received elements for each rank.
    #[error("all_to_all needs a count for each of the {world} ranks")]
    Counts { world: usize },
    /// The elements that an all-to-all sends and receives do not add up to the buffer's length.
    #[error("the counts have {sum} elements in all, but the buffer on {rank} has {elements}")]
    CountSum {
        rank: Rank,
        /// Elements sent and received in total.
        sum: usize,
        elements: usize,
    },
    /// A rank sends itself a different number of elements than it receives from itself.
    #[error("{rank} sends itself {sent} elements and receives {received}; make both counts equal")]
    OwnChunk { rank: Rank, sent: usize, received: usize },
    /// A buffer does not hold two halves of equal chunks, one for each rank.
    #[error("all_to_all: {elements} elements are not a multiple of 2 × {world} ranks")]
    Halves { elements: usize, world: usize },
    /// A message has no other rank as its peer, or lies outside of the buffer.
    #[error(
        "a message of {len} elements from {start} on between {rank} and {peer}: there are {world} ranks and {elements} \
         elements, and no rank sends to itself"
    )]
    Message { rank: Rank, peer: Rank, start: usize, len: usize, world: usize, elements: usize },
    /// The buffer of a barrier does not have exactly one element.
    #[error("a barrier's buffer has one element, not {elements}")]
    Barrier { elements: usize },
    /// Two slices that must have equal lengths do not.
    #[error("{operation}: {input} elements in and {output} elements out must be equal")]
    Lengths { operation: String, input: usize, output: usize },
    /// One slice must be as long as the other times the number of ranks, but is not.
    #[error("{operation}: {long} elements are not {world} ranks × {short} elements")]
    LengthByRanks { operation: String, long: usize, world: usize, short: usize },
    /// Ranks would have to read each other's buffers in place, but cannot.
    #[error("ranks cannot read each other's buffers in place over {transport}; use shared memory")]
    NotInPlace { transport: String },
    /// The buffer's memory belongs to another group.
    #[error("the buffer belongs to another group; allocate it from this one")]
    ForeignBuffer,
    /// The requested buffer exceeds the address space.
    #[error("a buffer of {elements} elements of {size} bytes is too large")]
    BufferTooLarge { elements: usize, size: usize },
}
