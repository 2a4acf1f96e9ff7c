//! Calls of collectives that are wrong whatever the other ranks call.

use serde::{Deserialize, Serialize};

use kolo_schedule::Rank;

/// Why a call is wrong by itself. Nothing has been sent, so no other rank is harmed. Ranks are those of the
/// group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum InvalidCall {
    /// An exchange receives into elements that it sends.
    #[error("elements {start} to {end} of {rank}'s buffer are both sent and received into by one exchange")]
    Overlap {
        /// The calling rank.
        rank: Rank,
        /// The first such element.
        start: usize,
        /// One behind the last of the first such elements.
        end: usize,
    },
    /// The root is no rank of the group.
    #[error("{operation} with root {root}, but the group has {world} ranks")]
    Root {
        /// The operation's name.
        operation: String,
        /// The root that was asked for.
        root: Rank,
        /// Number of ranks in the group.
        world: usize,
    },
    /// A buffer does not divide into one chunk for each rank.
    #[error("{elements} elements on {rank} do not divide into {world} equal chunks")]
    UnequalChunks {
        /// The calling rank.
        rank: Rank,
        /// Elements of its buffer.
        elements: usize,
        /// Number of ranks in the group.
        world: usize,
    },
    /// There is not one chunk for each rank.
    #[error("{chunks} chunks for a group of {world} ranks")]
    ChunkCount {
        /// Number of chunks that were given.
        chunks: usize,
        /// Number of ranks in the group.
        world: usize,
    },
    /// The chunks do not make up the buffer.
    #[error("chunks of {sum} elements in all, but {elements} elements on {rank}")]
    ChunkLengths {
        /// The calling rank.
        rank: Rank,
        /// Elements of all chunks together.
        sum: usize,
        /// Elements of the buffer.
        elements: usize,
    },
    /// A sum in tree order is over other ranks than the group's.
    #[error("contributions of {given} ranks in a group of {world}")]
    Contributors {
        /// Number of ranks that the contributions are of.
        given: usize,
        /// Number of ranks in the group.
        world: usize,
    },
    /// The buffer is shorter than the rank's parts of a sum in tree order.
    #[error("{elements} elements on {rank} are less than {parts} parts of {len}")]
    Parts {
        /// The calling rank.
        rank: Rank,
        /// Elements of its buffer.
        elements: usize,
        /// The rank's number of parts.
        parts: usize,
        /// Elements of one part.
        len: usize,
    },
    /// An all-to-all does not say for each rank how much it sends and receives.
    #[error("all_to_all needs a count for each of the {world} ranks")]
    Counts {
        /// Number of ranks in the group.
        world: usize,
    },
    /// What an all-to-all sends and receives does not make up the buffer.
    #[error("{sum} elements sent and received, but {elements} elements on {rank}")]
    CountSum {
        /// The calling rank.
        rank: Rank,
        /// Elements sent and received, all together.
        sum: usize,
        /// Elements of the buffer.
        elements: usize,
    },
    /// A rank sends itself another number of elements than it receives from itself.
    #[error("{rank} sends itself {sent} elements and receives {received}")]
    OwnChunk {
        /// The calling rank.
        rank: Rank,
        /// Elements sent to itself.
        sent: usize,
        /// Elements received from itself.
        received: usize,
    },
    /// A buffer does not hold two halves of equal chunks, one for each rank.
    #[error("all_to_all: {elements} elements are not 2 × {world} ranks × a number")]
    Halves {
        /// Elements of the buffer.
        elements: usize,
        /// Number of ranks in the group.
        world: usize,
    },
    /// A message goes to no other rank, or lies outside of the buffer.
    #[error(
        "a message of {len} elements from {start} on between {rank} and {peer}: there are {world} ranks and {elements} \
         elements, and nobody sends to itself"
    )]
    Message {
        /// The calling rank.
        rank: Rank,
        /// The rank at the other end.
        peer: Rank,
        /// Where the message begins in the buffer.
        start: usize,
        /// Its length.
        len: usize,
        /// Number of ranks in the group.
        world: usize,
        /// Elements of the buffer.
        elements: usize,
    },
    /// A barrier's buffer has not one element.
    #[error("a barrier's buffer has one element, not {elements}")]
    Barrier {
        /// Elements of the buffer.
        elements: usize,
    },
    /// Two slices that must be of one length are not.
    #[error("{operation}: {input} elements in and {output} elements out must be equal")]
    Lengths {
        /// The operation's name.
        operation: String,
        /// Elements that are read.
        input: usize,
        /// Elements that are written.
        output: usize,
    },
    /// One slice must be as long as the other times the number of ranks, and is not.
    #[error("{operation}: {long} elements are not {world} ranks × {short} elements")]
    LengthByRanks {
        /// The operation's name.
        operation: String,
        /// Elements of the slice for all ranks.
        long: usize,
        /// Number of ranks in the group.
        world: usize,
        /// Elements of the slice for one rank.
        short: usize,
    },
    /// Buffers are to be read where they lie by ranks that cannot.
    #[error("ranks cannot read each other's buffers where they lie over {transport}")]
    NotInPlace {
        /// How the ranks talk.
        transport: String,
    },
    /// The buffer's memory is not the group's.
    #[error("the buffer belongs to another group; allocate it from this one")]
    ForeignBuffer,
    /// More memory is asked for than can be addressed.
    #[error("a buffer of {elements} elements of {size} bytes is too large")]
    BufferTooLarge {
        /// Elements that were asked for.
        elements: usize,
        /// Bytes of one.
        size: usize,
    },
}
