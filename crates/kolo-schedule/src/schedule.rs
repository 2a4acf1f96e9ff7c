//! A schedule describes as data what one rank does in a collective, step by step.
//!
//! Terms: a *range* is a run of elements of the buffer; a *segment* is the part of a range that travels in
//! one message; a *part* is one of the copies of the buffer that a rank contributes (see [`crate::tree`]).
//!
//! A message refers to the sender's memory: a peer in shared memory reads it in place, at any time until it
//! has taken the message. A schedule must therefore not write to a range between sending it and the point
//! where the data flow implies that the peer has taken it; the proof checks this. A short message may be
//! sent as a copy instead.

use std::sync::Arc;

use crate::rank::Rank;
use crate::tree::Fold;

/// Elements `start .. start + len` of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// First element.
    pub start: usize,
    /// Number of elements.
    pub len: usize,
}

impl Range {
    pub(crate) fn between(start: usize, end: usize) -> Self {
        Range { start, len: end.saturating_sub(start) }
    }

    pub(crate) fn end(self) -> usize {
        self.start + self.len
    }

    /// Returns segment number `index` of the range, cut every `size` elements; empty past the end.
    pub(crate) fn segment(self, index: usize, size: usize) -> Range {
        let start = self.start + (index * size).min(self.len);
        Range::between(start, self.end().min(start + size))
    }

    pub(crate) fn shifted(self, by: usize) -> Range {
        Range { start: self.start + by, len: self.len }
    }
}

/// Contribution to a [`Step::Reduce`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// This rank's own elements, at this offset behind the range that is written.
    Own(usize),
    /// The next message from this rank.
    From(Rank),
}

/// Step of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Offers a range to a peer. Does not wait.
    Send {
        /// The peer.
        to: Rank,
        /// Elements to send.
        range: Range,
        /// True if a copy is sent; the range may then be overwritten at once.
        copied: bool,
    },
    /// Writes the sum of the sources, added by `program`, into a range.
    Reduce {
        /// Destination.
        range: Range,
        /// Values to add.
        sources: Arc<[Source]>,
        /// Order of the additions.
        program: Arc<[Fold]>,
        /// True if this is the whole sum; an average is divided at this step.
        complete: bool,
    },
    /// Overwrites a range with the next message from a peer.
    Receive {
        /// The peer.
        from: Rank,
        /// Destination.
        range: Range,
    },
    /// Overwrites a range with this rank's own elements from elsewhere in the buffer.
    Copy {
        /// First element to copy.
        from: usize,
        /// Destination.
        range: Range,
    },
}

/// Steps of one rank in one collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Steps, executed in this order.
    pub steps: Vec<Step>,
}

impl Schedule {
    /// Returns true if the steps write every element of `range` exactly once, nothing else, and read none
    /// of them after that. They may then write the range to other memory, and leave the buffer as it is.
    pub fn writes_only(&self, range: Range) -> bool {
        let mut written = range.start;
        let in_order = self.steps.iter().all(|step| match step {
            Step::Reduce { range: next, sources, .. } => {
                let follows = next.start == written;
                written = next.end();
                follows && sources.iter().all(|source| matches!(source, Source::Own(0) | Source::From(_)))
            }
            Step::Send { range: sent, .. } => sent.end() <= range.start || range.end() <= sent.start,
            Step::Receive { .. } | Step::Copy { .. } => false,
        });
        in_order && written == range.end()
    }
}

/// Number of untaken messages that a transport holds between two ranks before a `Send` waits. No schedule
/// may depend on more.
pub const MAX_UNTAKEN: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Contributions;
    use crate::{ALGORITHMS, Chunks, Operation, Problem, Topology};

    /// Returns the schedule of an algorithm for the last rank, on `len` elements.
    fn schedule(name: &str, operation: &Operation, world: usize, len: usize) -> Schedule {
        let algorithm = ALGORITHMS.iter().find(|algorithm| algorithm.name == name).unwrap();
        let (contributions, topology) = (&Contributions::one_each(world), &Topology::single(world));
        let rank = Rank(world - 1);
        (algorithm.build)(&Problem { operation, rank, len, contributions, topology, segment: 4 }).unwrap()
    }

    #[test]
    fn a_direct_reduce_scatter_leaves_its_input_as_it_is() {
        let (scatter, reduce) = (Operation::ReduceScatter(Chunks::Equal), Operation::AllReduce);
        for world in 1..=5 {
            for each in [0, 1, 4, 11] {
                let own = Range { start: (world - 1) * each, len: each };
                let direct = schedule("direct", &scatter, world, world * each);
                assert!(direct.writes_only(own), "{world} ranks, {each} elements");
                if each > 1 {
                    assert!(!direct.writes_only(Range { len: each - 1, ..own }), "it writes more");
                    assert!(!direct.writes_only(Range { len: each + 1, ..own }), "it writes less");
                }
                if each > 0 && world > 2 {
                    let ring = schedule("ring", &scatter, world, world * each);
                    assert!(!ring.writes_only(own), "sums travel through the buffers");
                }
                if each > 0 && world > 1 {
                    assert!(!schedule("direct", &reduce, world, world * each).writes_only(own));
                }
            }
        }
    }
}
