//! Building blocks that several algorithms share: chunks, segments and single steps.

use std::sync::Arc;

use crate::rank::Rank;
use crate::schedule::{MAX_UNTAKEN, Range, Source, Step};
use crate::tree::Fold;

/// Number of elements in a cache line of 64 bytes at 4 bytes per element.
pub(crate) const LINE: usize = 16;

/// Divides a range among `world` owners in whole cache lines, so that no two ranks write to the same line.
/// Very short buffers belong to the first ranks alone.
pub(super) fn owned(whole: Range, world: usize) -> Vec<Range> {
    let each = whole.len.div_ceil(world).next_multiple_of(LINE);
    let cut = |rank: usize| whole.start + (rank * each).min(whole.len);
    (0..world).map(|rank| Range::between(cut(rank), cut(rank + 1))).collect()
}

/// Returns the other ranks, starting with this rank's successor, so that not all send to rank 0 first.
pub(super) fn others(rank: Rank, world: usize) -> impl Iterator<Item = Rank> {
    (1..world).map(move |distance| Rank((rank.0 + distance) % world))
}

/// Cuts a range into segments, at the same places at both ends. A rank may send all segments of a round
/// before it takes the peer's first one. The number of segments is therefore limited to what a transport
/// holds; otherwise both ranks could wait for room.
pub(super) fn segments(range: Range, segment: usize) -> impl Iterator<Item = Range> + Clone {
    let size = segment.max(range.len.div_ceil(MAX_UNTAKEN)).max(1);
    (0..range.len.div_ceil(size)).map(move |index| range.segment(index, size))
}

pub(super) fn longest(ranges: &[Range], segment: usize) -> usize {
    ranges.iter().map(|range| range.len.div_ceil(segment)).max().unwrap_or(0)
}

/// Returns the step that sends a range; `None` if it is empty.
pub(super) fn send(to: Rank, range: Range) -> Option<Step> {
    (range.len > 0).then_some(Step::Send { to, range, copied: false })
}

/// Returns the step that receives a range; `None` if it is empty.
pub(super) fn receive(from: Rank, range: Range) -> Option<Step> {
    (range.len > 0).then_some(Step::Receive { from, range })
}

/// Returns the sources of an addition: this rank's own parts in place, other ranks' parts from messages.
pub(super) fn sources(
    contributions: impl IntoIterator<Item = (Rank, usize)>,
    rank: Rank,
    len: usize,
) -> Arc<[Source]> {
    let source = |(from, part)| if from == rank { Source::Own(part * len) } else { Source::From(from) };
    contributions.into_iter().map(source).collect()
}

/// Sources of an addition, and the program that adds them.
pub(super) type Sum = (Arc<[Source]>, Arc<[Fold]>);

/// Returns the step that adds a range, and those that send the result; nothing if the range is empty.
pub(super) fn add_and_send(
    range: Range,
    sum: &Sum,
    complete: bool,
    sends: impl IntoIterator<Item = Step>,
) -> Vec<Step> {
    if range.len == 0 {
        return Vec::new();
    }
    let (sources, program) = sum.clone();
    [Step::Reduce { range, sources, program, complete }].into_iter().chain(sends).collect()
}

/// Returns the program that adds two values.
pub(super) fn pair() -> Arc<[Fold]> {
    [Fold::Push(0), Fold::Push(1), Fold::Add].into()
}

/// Adds a peer's message to this rank's elements, the lower rank's contribution on the left.
pub(super) fn add_in_order(rank: Rank, peer: Rank, range: Range, complete: bool) -> Step {
    let sources =
        if rank < peer { [Source::Own(0), Source::From(peer)] } else { [Source::From(peer), Source::Own(0)] };
    Step::Reduce { range, sources: sources.into(), program: pair(), complete }
}
