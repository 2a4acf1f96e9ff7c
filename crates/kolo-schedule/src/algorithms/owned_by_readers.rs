//! Division of the blocks of a sum among the ranks that need them: each block's readers add equal parts.

use super::steps::owned;
use crate::rank::Rank;
use crate::readers::{ReadBlock, ranges};
use crate::schedule::Range;

/// Segments that each rank adds, each with the ranks that need its sum.
pub(super) struct OwnedByReaders<'a>(Vec<Vec<(Range, &'a [Rank])>>);

impl<'a> OwnedByReaders<'a> {
    /// Divides blocks among `world` ranks, in segments of at most `longest` elements.
    pub(super) fn new(blocks: &'a [ReadBlock], world: usize, longest: usize) -> Self {
        let (mut segments, longest) = (vec![Vec::new(); world], longest.max(1));
        for (block, ReadBlock { readers, .. }) in ranges(blocks) {
            for (reader, part) in readers.iter().zip(owned(block, readers.len().max(1))) {
                let cut = |index| (part.segment(index, longest), &readers[..]);
                segments[reader.0].extend((0..part.len.div_ceil(longest)).map(cut));
            }
        }
        OwnedByReaders(segments)
    }

    /// Returns a rank's segment with this number; empty past the last one.
    pub(super) fn segment(&self, owner: Rank, index: usize) -> Range {
        self.0[owner.0].get(index).map_or(Range { start: 0, len: 0 }, |(range, _)| *range)
    }

    /// Returns true if a rank needs the sum of another rank's segment.
    pub(super) fn reads(&self, reader: Rank, owner: Rank, index: usize) -> bool {
        self.0[owner.0].get(index).is_some_and(|(_, readers)| readers.binary_search(&reader).is_ok())
    }

    /// Returns the maximum number of segments of a rank.
    pub(super) fn rounds(&self) -> usize {
        self.0.iter().map(Vec::len).max().unwrap_or(0)
    }
}
