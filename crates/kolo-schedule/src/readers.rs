//! Ranks that need a sum: all of them, or other ranks for each block of it.

use std::sync::Arc;

use crate::rank::Rank;
use crate::schedule::Range;

/// Ranks that need a sum.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Readers {
    /// All ranks but servers need all of it.
    All,
    /// Consecutive blocks, which together are the whole sum; see [`Readers::of_blocks`].
    Blocks(Arc<[ReadBlock]>),
}

/// Consecutive elements of a sum, and the ranks that need them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReadBlock {
    /// Number of elements.
    pub len: usize,
    /// Ranks that end with the sum of these elements, ascending. They share the additions.
    pub readers: Box<[Rank]>,
}

impl Readers {
    /// Divides a sum into consecutive blocks of the given lengths, each with any number of readers. A block
    /// without readers is not added. Neighbors with the same readers become one block. All ranks must pass
    /// the same blocks.
    pub fn of_blocks<R: IntoIterator<Item = Rank>>(blocks: impl IntoIterator<Item = (usize, R)>) -> Self {
        let mut joined: Vec<ReadBlock> = Vec::new();
        for (len, readers) in blocks {
            let mut readers: Vec<Rank> = readers.into_iter().collect();
            readers.sort_unstable();
            readers.dedup();
            match joined.last_mut() {
                _ if len == 0 => {}
                Some(last) if *last.readers == *readers => last.len += len,
                _ => joined.push(ReadBlock { len, readers: readers.into() }),
            }
        }
        Readers::Blocks(joined.into())
    }
}

/// Returns the place of each block in the sum.
pub(crate) fn ranges(blocks: &[ReadBlock]) -> impl Iterator<Item = (Range, &ReadBlock)> {
    blocks.iter().scan(0, |next, block| {
        let start = *next;
        *next += block.len;
        Some((Range { start, len: block.len }, block))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbors_with_the_same_readers_become_one_block() {
        let blocks = [(3, vec![1, 0]), (0, vec![2]), (4, vec![0, 1, 0]), (5, vec![]), (1, vec![2])];
        let blocks = blocks.map(|(len, readers)| (len, readers.into_iter().map(Rank)));
        let Readers::Blocks(joined) = Readers::of_blocks(blocks) else { unreachable!() };
        let joined: Vec<(usize, Vec<usize>)> = ranges(&joined)
            .map(|(range, block)| (range.start, block.readers.iter().map(|rank| rank.0).collect()))
            .collect();
        assert_eq!(joined, [(0, vec![0, 1]), (7, vec![]), (12, vec![2])]);
    }
}
