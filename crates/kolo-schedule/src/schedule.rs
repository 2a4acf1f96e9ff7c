//! A schedule says as data what one rank does in a collective, step by step.
//!
//! Words: a *range* is a run of elements of the buffer; a *segment* is the part of a range that travels in
//! one message; a *part* is one of the copies of the buffer that a rank contributes (see [`crate::tree`]).
//!
//! A message refers to the sender's memory: a shared-memory peer reads it where it lies, at any time until it
//! has taken it. Every schedule must therefore leave a range alone from the moment it is sent until the data
//! flow itself proves that it was taken; the proof checks that, too. A short message may be sent as a copy
//! instead.

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

    /// Segment number `index` when cut every `size` elements; empty past the end.
    pub(crate) fn segment(self, index: usize, size: usize) -> Range {
        let start = self.start + (index * size).min(self.len);
        Range::between(start, self.end().min(start + size))
    }

    pub(crate) fn shifted(self, by: usize) -> Range {
        Range { start: self.start + by, len: self.len }
    }
}

/// One contribution to a [`Step::Reduce`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// This rank's own elements, that far behind the range that is written.
    Own(usize),
    /// The next message from that rank.
    From(Rank),
}

/// One step of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Offer a range to a peer. Does not wait.
    Send {
        /// The peer.
        to: Rank,
        /// Which elements.
        range: Range,
        /// Whether a copy is sent, so that the range is free again at once.
        copied: bool,
    },
    /// Write the sum of the sources, added by `program`, into a range.
    Reduce {
        /// Where.
        range: Range,
        /// What is added.
        sources: Arc<[Source]>,
        /// In which order.
        program: Arc<[Fold]>,
        /// Whether this is the whole sum, so that an average is divided now.
        complete: bool,
    },
    /// Overwrite a range with the next message from a peer.
    Receive {
        /// The peer.
        from: Rank,
        /// Where.
        range: Range,
    },
    /// Overwrite a range with own elements elsewhere in the buffer.
    Copy {
        /// First element of those copied.
        from: usize,
        /// Where.
        range: Range,
    },
}

/// What one rank does in one collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Its steps, done in this order.
    pub steps: Vec<Step>,
}

/// How many untaken messages a transport holds between two ranks before a `Send` waits. No schedule may
/// depend on more.
pub const MAX_UNTAKEN: usize = 32;
