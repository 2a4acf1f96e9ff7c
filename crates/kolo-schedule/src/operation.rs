//! The operations: the messages that each collective needs, and a table of their properties.

use std::sync::Arc;

use strum::{EnumDiscriminants, EnumString, IntoStaticStr, VariantArray};

use crate::rank::Rank;
use crate::readers::ReadBlock;
use crate::schedule::Range;

/// Division of a buffer into one chunk per rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Chunks {
    /// Equal chunks: the length is a multiple of the number of ranks.
    Equal,
    /// Number of elements for each rank; the list is the same on all ranks.
    Varied(Arc<[usize]>),
}

impl Chunks {
    /// Returns the chunks of `len` elements on `world` ranks.
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

/// Message between two ranks, as one of them describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// The other rank.
    pub peer: Rank,
    /// Elements of this rank's buffer.
    pub range: Range,
}

/// Collective operation. Buffers are used in place, except by all-to-all.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EnumDiscriminants)]
#[strum_discriminants(
    name(OperationKind),
    derive(Hash, EnumString, IntoStaticStr, VariantArray),
    strum(serialize_all = "kebab-case"),
    doc = "An [`Operation`] without its arguments. Its name on the command line reads back with [`str::parse`]."
)]
pub enum Operation {
    /// Every rank ends with the sum of all contributions.
    AllReduce,
    /// Rank r ends with the sum over all ranks of chunk r, in its own chunk r; the rest is unspecified.
    ReduceScatter(Chunks),
    /// The readers of each block end with its sum, at its place; the rest is unspecified.
    ReduceToReaders(Arc<[ReadBlock]>),
    /// Every rank ends with chunk r of rank r, for all r.
    AllGather(Chunks),
    /// Every rank ends with the root's buffer.
    Broadcast(Rank),
    /// The root ends with the sum; the buffers of the other ranks are unspecified.
    Reduce(Rank),
    /// The root ends with chunk r of rank r. Each other buffer holds its rank's chunk at the start.
    Gather(Rank),
    /// Rank r ends with the root's chunk r, at the start of its buffer; the root's own stays in place.
    Scatter(Rank),
    /// Rank r receives chunk r of every rank. A buffer holds first the received elements in rank order, then
    /// those to send.
    AllToAll {
        /// Number of elements sent to each rank.
        send: Arc<[usize]>,
        /// Number of elements received from each rank.
        receive: Arc<[usize]>,
    },
    /// Some ranks send and receive messages at the same time.
    #[strum_discriminants(strum(serialize = "send-receive"))]
    Exchange {
        /// Messages that this rank sends.
        send: Arc<[Message]>,
        /// Messages that this rank receives; those from one rank are taken in the order of this list.
        receive: Arc<[Message]>,
    },
}

impl Operation {
    /// Returns the operation without its arguments.
    pub fn kind(&self) -> OperationKind {
        self.into()
    }

    /// Returns the rank that sends or receives all data, if there is one.
    pub fn root(&self) -> Option<Rank> {
        match self {
            Operation::Broadcast(root)
            | Operation::Reduce(root)
            | Operation::Gather(root)
            | Operation::Scatter(root) => Some(*root),
            _ => None,
        }
    }

    /// Returns true if the operation adds, so that the order of additions matters.
    pub fn adds(&self) -> bool {
        self.kind().properties().adds
    }
}

/// Properties of an operation that do not depend on its arguments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Properties {
    /// Result on each rank, in one line.
    pub about: &'static str,
    /// True if contributions are added, so that the order of additions matters.
    pub adds: bool,
    /// True if one rank sends or receives all data.
    pub has_root: bool,
    /// True if a buffer is divided into one chunk per rank.
    pub in_chunks: bool,
    /// Bytes on a rank's link per byte of the buffer, as nccl-tests defines the bus bandwidth.
    pub bus: BusShare,
}

/// Bytes that pass a rank's link per byte of the buffer when N ranks perform an operation optimally
/// (nccl-tests, doc/PERFORMANCE.md).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BusShare {
    /// All of them.
    Whole,
    /// (N−1)/N: all but the rank's own chunk.
    Others,
    /// 2(N−1)/N: all but the rank's own chunk, in two passes.
    OthersTwice,
}

impl BusShare {
    /// Returns the ratio of bus bandwidth to algorithm bandwidth on `world` ranks.
    pub fn factor(self, world: usize) -> f64 {
        let others = (world as f64 - 1.0) / world as f64;
        match self {
            BusShare::Whole => 1.0,
            BusShare::Others => others,
            BusShare::OthersTwice => 2.0 * others,
        }
    }
}

impl OperationKind {
    /// All operations.
    pub const ALL: &[OperationKind] = OperationKind::VARIANTS;

    /// Returns the name on the command line: `all-reduce`.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the operation's row in the table of operations.
    pub fn properties(self) -> Properties {
        use BusShare::{Others, OthersTwice, Whole};
        let row =
            |adds, has_root, in_chunks, bus, about| Properties { about, adds, has_root, in_chunks, bus };
        match self {
            //                              adds   root   chunks
            OperationKind::AllReduce => {
                row(true, false, false, OthersTwice, "Every rank ends with the sum over all")
            }
            OperationKind::ReduceScatter => {
                row(true, false, true, Others, "Rank r ends with part r of the sum over all")
            }
            OperationKind::ReduceToReaders => {
                row(true, false, true, Others, "The readers of each block end with its sum over all")
            }
            OperationKind::AllGather => {
                row(false, false, true, Others, "Every rank ends with the parts of all")
            }
            OperationKind::Broadcast => {
                row(false, true, false, Whole, "Every rank ends with the root's buffer")
            }
            OperationKind::Reduce => row(true, true, false, Whole, "The root ends with the sum over all"),
            OperationKind::Gather => row(false, true, true, Others, "The root ends with the parts of all"),
            OperationKind::Scatter => {
                row(false, true, true, Others, "Every rank ends with its part of the root's buffer")
            }
            OperationKind::AllToAll => {
                row(false, false, true, Others, "Every rank ends with its part of everybody's buffer")
            }
            OperationKind::Exchange => row(
                false,
                false,
                false,
                Whole,
                "Every rank sends to the next one and receives from the one before",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back() {
        for kind in OperationKind::ALL {
            assert_eq!(kind.name().parse(), Ok(*kind));
        }
        assert_eq!(OperationKind::ReduceScatter.name(), "reduce-scatter");
        assert_eq!("send-receive".parse(), Ok(OperationKind::Exchange));
        assert!("all_reduce".parse::<OperationKind>().is_err());
    }

    #[test]
    fn an_operation_has_a_root_if_the_table_says_so() {
        let (rank, none) = (Rank(1), || -> Arc<[Message]> { [].into() });
        for operation in [
            Operation::AllReduce,
            Operation::ReduceScatter(Chunks::Equal),
            Operation::ReduceToReaders([].into()),
            Operation::AllGather(Chunks::Equal),
            Operation::Broadcast(rank),
            Operation::Reduce(rank),
            Operation::Gather(rank),
            Operation::Scatter(rank),
            Operation::AllToAll { send: [].into(), receive: [].into() },
            Operation::Exchange { send: none(), receive: none() },
        ] {
            assert_eq!(operation.root().is_some(), operation.kind().properties().has_root, "{operation:?}");
        }
    }

    #[test]
    fn bus_bandwidth_is_that_of_nccl_tests() {
        let factor = |kind: OperationKind| kind.properties().bus.factor(4);
        assert_eq!((factor(OperationKind::AllReduce), factor(OperationKind::AllGather)), (1.5, 0.75));
        assert_eq!(factor(OperationKind::Broadcast), 1.0);
    }
}
