//! Collectives as data: what one rank does, step by step.
//!
//! A schedule is a pure function of the rank, the group and the lengths. The executor runs it over a
//! transport; the proof in this folder runs the same value on sets of contributions, without threads or
//! sockets.
//!
//! Words: a *range* is a run of elements of the buffer; a *segment* is the part of a range that travels in
//! one message; a *part* is one of the copies of the buffer that a rank contributes (see [`crate::tree`]).
//!
//! A message refers to the sender's memory: a shared-memory peer reads it where it lies, at any time until it
//! has taken it. Every schedule must therefore leave a range alone from the moment it is sent until the data
//! flow itself proves that it was taken; the proof checks that, too.

mod direct;
mod halving_doubling;
#[cfg(test)]
mod proof;
mod ring;

use std::sync::Arc;

use crate::rank::Rank;
use crate::tree::{Contributions, Fold};

pub use direct::{all_gather, broadcast, reduce_scatter};

/// Elements `start .. start + len` of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First element.
    pub start: usize,
    /// Number of elements.
    pub len: usize,
}

impl Range {
    fn between(start: usize, end: usize) -> Self {
        Range { start, len: end.saturating_sub(start) }
    }

    fn end(self) -> usize {
        self.start + self.len
    }

    /// Segment number `index` when cut every `size` elements; empty past the end.
    fn segment(self, index: usize, size: usize) -> Range {
        let start = self.start + (index * size).min(self.len);
        Range::between(start, self.end().min(start + size))
    }
}

/// One contribution to a [`Step::Reduce`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// This rank's own part of that number.
    Own(usize),
    /// The next message from that rank.
    From(Rank),
}

/// One step of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Offer a range of one part to a peer. Does not wait.
    Send {
        /// The peer.
        to: Rank,
        /// Which part of the buffer.
        part: usize,
        /// Which elements of it.
        range: Range,
    },
    /// Write the sum of the sources, added by `program`, into a range of part 0.
    Reduce {
        /// Where in part 0.
        range: Range,
        /// What is added.
        sources: Arc<[Source]>,
        /// In which order.
        program: Arc<[Fold]>,
        /// Whether this is the whole sum, so that an average is divided now.
        complete: bool,
    },
    /// Overwrite a range of part 0 with the next message from a peer.
    Receive {
        /// The peer.
        from: Rank,
        /// Where in part 0.
        range: Range,
    },
}

/// What one rank does in one collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Its steps, done in this order.
    pub steps: Vec<Step>,
}

/// What an all-reduce needs to know.
#[derive(Clone, Debug)]
pub struct Problem<'a> {
    /// The rank whose schedule is wanted.
    pub rank: Rank,
    /// Elements in one part.
    pub len: usize,
    /// Who contributes what.
    pub contributions: &'a Contributions,
    /// Largest message, in elements.
    pub segment: usize,
}

/// An all-reduce algorithm.
#[derive(Debug)]
pub struct Algorithm {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it costs and when to take it, in one line.
    pub about: &'static str,
    /// Whether it adds in the order of the tree, so that the result does not depend on the number of ranks.
    pub keeps_tree: bool,
    /// Whether it can serve these contributions; otherwise why not.
    pub supports: fn(&Contributions) -> Result<(), &'static str>,
    /// The schedule of one rank.
    pub build: fn(&Problem<'_>) -> Schedule,
}

/// Every all-reduce algorithm there is. The command line, its help and the tests read this table.
pub static ALGORITHMS: &[Algorithm] = &[direct::ALGORITHM, halving_doubling::ALGORITHM, ring::ALGORITHM];

/// Picks the algorithm of an all-reduce, with the reason.
///
/// Only algorithms that keep the tree are picked. Direct moves the least bytes at any world size; over sockets
/// a short message costs its latency, and halving-doubling needs log N messages where direct needs N.
pub fn choose(
    contributions: &Contributions,
    bytes: usize,
    shared_memory: bool,
) -> (&'static Algorithm, &'static str) {
    let fits = (halving_doubling::ALGORITHM.supports)(contributions).is_ok();
    if !shared_memory && fits && contributions.world() > 2 && bytes <= SHORT {
        (&ALGORITHMS[1], "short message over sockets: log N messages instead of N")
    } else {
        (&ALGORITHMS[0], "least bytes, keeps the tree at any world size")
    }
}

/// How many untaken messages a transport holds between two ranks before a `Send` waits. No schedule may
/// depend on more.
pub const MAX_UNTAKEN: usize = 32;

/// Messages up to this many bytes count as short: their latency outweighs their transfer.
const SHORT: usize = 64 * 1024;

/// The elements that each rank owns when `len` are divided among `world`: whole cache lines (64 bytes at 4 bytes
/// an element), so that two ranks never write one line. Very short buffers belong to the first ranks alone.
fn owned(len: usize, world: usize) -> Vec<Range> {
    const LINE: usize = 16;
    let each = len.div_ceil(world).next_multiple_of(LINE);
    (0..world).map(|rank| Range::between((rank * each).min(len), ((rank + 1) * each).min(len))).collect()
}

/// The program that adds two values.
fn pair() -> Arc<[Fold]> {
    [Fold::Push(0), Fold::Push(1), Fold::Add].into()
}
