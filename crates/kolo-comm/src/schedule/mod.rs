//! Collectives as data: what one rank does, step by step.
//!
//! A schedule is a pure function of the rank, the group and the lengths. The executor runs it over a
//! transport; the proof in this folder runs the same value on sets of contributions, without threads or
//! sockets; kolo-plan simulates it.
//!
//! Words: a *range* is a run of elements of the buffer; a *segment* is the part of a range that travels in
//! one message; a *part* is one of the copies of the buffer that a rank contributes (see [`crate::tree`]).
//!
//! A message refers to the sender's memory: a shared-memory peer reads it where it lies, at any time until it
//! has taken it. Every schedule must therefore leave a range alone from the moment it is sent until the data
//! flow itself proves that it was taken; the proof checks that, too. A short message may be sent as a copy instead.

mod binomial;
mod blocks;
mod choice;
mod cost;
mod direct;
mod double_tree;
mod halving_doubling;
mod hierarchical;
mod one_shot;
mod operation;
mod pipeline;
#[cfg(test)]
mod proof;
mod recursive_doubling;
mod ring;

use std::sync::Arc;

use crate::rank::Rank;
use crate::topology::Topology;
use crate::tree::{Contributions, Fold};

pub use choice::{Choice, choose};
pub use cost::{Cost, Curve, Link, Network, Traffic};
pub use operation::{Chunks, Message, Operation};

/// Elements `start .. start + len` of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

    fn shifted(self, by: usize) -> Range {
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

/// What an algorithm needs to know.
#[derive(Clone, Debug)]
pub struct Problem<'a> {
    /// What is to be done.
    pub operation: &'a Operation,
    /// The rank whose schedule is wanted.
    pub rank: Rank,
    /// Elements in one part; for all operations but reductions, of the whole buffer.
    pub len: usize,
    /// Who contributes what to a reduction.
    pub contributions: &'a Contributions,
    /// Who shares memory with whom.
    pub topology: &'a Topology,
    /// Largest message, in elements.
    pub segment: usize,
}

impl Problem<'_> {
    fn world(&self) -> usize {
        self.contributions.world()
    }

    /// Whether each rank contributes one subtree and all are of one size: then pairwise additions of neighbours are those
    /// of the tree, at any number of ranks.
    fn one_subtree_each(&self) -> Result<(), &'static str> {
        let node = |rank: usize| self.contributions.of(Rank(rank)).first().copied();
        let size = node(0).map_or(0, |node| node.count);
        let one = |rank| self.contributions.of(Rank(rank)).len() == 1;
        let equal = (0..self.world()).all(|rank| {
            one(rank) && node(rank).is_some_and(|node| node.count == size && node.first == rank * size)
        });
        if equal { Ok(()) } else { Err("it needs an equal, power-of-two number of shards on every rank") }
    }

    /// Whether each rank contributes something.
    fn something_each(&self) -> Result<(), &'static str> {
        match (0..self.world()).any(|rank| self.contributions.of(Rank(rank)).is_empty()) {
            true => Err("it needs at least one shard on every rank"),
            false => Ok(()),
        }
    }

    /// The step that adds a rank's own parts into part 0, for algorithms in which a rank's contribution travels as one
    /// value.
    fn fold_own(&self) -> Option<Step> {
        let nodes = self.contributions.of(self.rank);
        (nodes.len() > 1).then(|| Step::Reduce {
            range: Range { start: 0, len: self.len },
            sources: (0..nodes.len()).map(|part| Source::Own(part * self.len)).collect(),
            program: crate::tree::fold(nodes).into(),
            complete: false,
        })
    }
}

/// A way to do some of the operations.
#[derive(Debug)]
pub struct Algorithm {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it costs and when to take it, in one line.
    pub about: &'static str,
    /// The operations it does, by [`Operation::name`].
    pub operations: &'static [&'static str],
    /// Whether it adds in the order of the tree, so that the result does not depend on the number of ranks.
    pub keeps_tree: bool,
    /// Whether it adds all contributions at once, so that 16-bit floats are rounded once.
    pub adds_at_once: bool,
    /// Whether it can solve this problem, which is one of its operations; otherwise why not.
    pub supports: fn(&Problem<'_>) -> Result<(), &'static str>,
    /// What it costs.
    pub cost: fn(&Problem<'_>) -> Cost,
    /// The schedule of one rank.
    pub build: fn(&Problem<'_>) -> Schedule,
}

impl Algorithm {
    /// Whether it does this operation at all, be it not on every group.
    pub fn does(&self, operation: &Operation) -> bool {
        self.operations.contains(&operation.name())
    }
}

/// Every algorithm there is. The command line, its help and the tests read this table.
pub static ALGORITHMS: &[Algorithm] = &[
    direct::ALGORITHM,
    one_shot::ALGORITHM,
    halving_doubling::ALGORITHM,
    recursive_doubling::ALGORITHM,
    binomial::ALGORITHM,
    hierarchical::ALGORITHM,
    ring::ALGORITHM,
    double_tree::ALGORITHM,
];

/// How many untaken messages a transport holds between two ranks before a `Send` waits. No schedule may
/// depend on more.
pub const MAX_UNTAKEN: usize = 32;

/// The elements that each rank owns when a range is divided among `world`: whole cache lines (64 bytes at 4 bytes
/// an element), so that two ranks never write one line. Very short buffers belong to the first ranks alone.
fn owned(whole: Range, world: usize) -> Vec<Range> {
    const LINE: usize = 16;
    let each = whole.len.div_ceil(world).next_multiple_of(LINE);
    let cut = |rank: usize| whole.start + (rank * each).min(whole.len);
    (0..world).map(|rank| Range::between(cut(rank), cut(rank + 1))).collect()
}

/// The other ranks, each rank starting with its successor, so that not all call on rank 0 first.
fn others(rank: Rank, world: usize) -> impl Iterator<Item = Rank> {
    (1..world).map(move |distance| Rank((rank.0 + distance) % world))
}

/// Both ends cut a range at the same places. Where a rank sends all segments of a round before it takes the first one
/// of the other, their number is bounded by what a transport holds: else both could wait for room.
fn segments(range: Range, segment: usize) -> impl Iterator<Item = Range> + Clone {
    let size = segment.max(range.len.div_ceil(MAX_UNTAKEN)).max(1);
    (0..range.len.div_ceil(size)).map(move |index| range.segment(index, size))
}

/// The number of segments of the longest range.
fn longest(ranges: &[Range], segment: usize) -> usize {
    ranges.iter().map(|range| range.len.div_ceil(segment)).max().unwrap_or(0)
}

/// Offer a range; nothing if it is empty.
fn send(to: Rank, range: Range) -> Option<Step> {
    (range.len > 0).then_some(Step::Send { to, range, copied: false })
}

/// Take a range; nothing if it is empty.
fn receive(from: Rank, range: Range) -> Option<Step> {
    (range.len > 0).then_some(Step::Receive { from, range })
}

/// The program that adds two values.
fn pair() -> Arc<[Fold]> {
    [Fold::Push(0), Fold::Push(1), Fold::Add].into()
}

/// Adds a peer's message to own elements, the lower rank's contribution on the left.
fn add_in_order(rank: Rank, peer: Rank, range: Range, complete: bool) -> Step {
    let sources =
        if rank < peer { [Source::Own(0), Source::From(peer)] } else { [Source::From(peer), Source::Own(0)] };
    Step::Reduce { range, sources: sources.into(), program: pair(), complete }
}
