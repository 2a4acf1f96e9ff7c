//! Divides any number of ranks into blocks of powers of two, the largest first: 7 = 4 + 2 + 1 (Rabenseifner
//! & Träff 2004).
//!
//! Inside a block neighbors are added first. Then each block's sum is added to that of the block before it,
//! starting with the last block. That is the order of the tree: (((0+1)+(2+3))+((4+5)+6)).

/// Block of ranks `first .. first + size`; `size` is a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub first: usize,
    pub size: usize,
}

pub(super) fn blocks(world: usize) -> Vec<Block> {
    let mut first = 0;
    let mut blocks = Vec::new();
    for bit in (0..usize::BITS).rev().filter(|bit| world >> bit & 1 == 1) {
        blocks.push(Block { first, size: 1 << bit });
        first += 1 << bit;
    }
    blocks
}

/// Returns the number of a rank's block and the rank's place in it.
pub(super) fn place(blocks: &[Block], rank: usize) -> (usize, usize) {
    let number = blocks.iter().rposition(|block| block.first <= rank).expect("blocks start with rank 0");
    (number, rank - blocks[number].first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seven_is_four_and_two_and_one() {
        let sizes = |world| blocks(world).iter().map(|block| block.size).collect::<Vec<_>>();
        assert_eq!(sizes(7), [4, 2, 1]);
        assert_eq!(sizes(8), [8]);
        assert_eq!(place(&blocks(7), 5), (1, 1));
        assert_eq!(place(&blocks(7), 6), (2, 0));
    }
}
