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

/// Number of untaken messages that a transport holds between two ranks before a `Send` waits. No schedule
/// may depend on more.
pub const MAX_UNTAKEN: usize = 32;
