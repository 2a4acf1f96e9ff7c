//! The sum of squares of a gradient that comes in slices, in the same bits for any cut.

use crate::buckets::{BLOCK, Slice};
use kolo_optim::norm::sum_of_squares;
use kolo_optim::{Layout, Span};

/// Sums of squares by tensor and block. They come in any order and are added in the model's: neither the
/// cuts of tensors into buckets nor the rank that has seen a block make a difference, because a block that a
/// rank has not seen is 0 there, and adding that changes no bit.
#[derive(Default)]
pub struct BlockSquares {
    sums: Vec<f64>,
    /// Place of each tensor's first block.
    first: Vec<usize>,
}

kolo_comm::opaque_debug!(BlockSquares);

impl BlockSquares {
    /// Starts with zeros.
    pub fn new(layout: &Layout) -> Self {
        let mut blocks = 0;
        let first = |span: &Span| {
            let first = blocks;
            blocks += span.len.div_ceil(BLOCK);
            first
        };
        let first = layout.spans().iter().map(first).collect();
        BlockSquares { sums: vec![0.0; blocks], first }
    }

    /// Sums the squares of a slice; replaces an earlier sum of it.
    pub fn see(&mut self, slice: &Slice, gradient: &[f32]) {
        let blocks = &mut self.sums[self.first[slice.span.0] + slice.elements.start / BLOCK..];
        blocks.iter_mut().zip(gradient.chunks(BLOCK)).for_each(|(sum, block)| *sum = sum_of_squares(block));
    }

    /// The sum over all elements.
    pub fn sum(&self) -> f64 {
        self.sums.iter().sum()
    }

    /// The sum of each block, to be added to those of ranks that have seen other blocks.
    pub fn sums(&mut self) -> &mut [f64] {
        &mut self.sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owners::{Owners, slices};
    use kolo_comm::Rank;
    use kolo_optim::{Kind, ParamSpec, Scope};

    #[test]
    fn ranks_that_each_see_some_blocks_have_the_bits_of_the_whole() {
        let kind = Kind::Parameter { decay: true };
        let specs = [3 * BLOCK + 5, 7, 2 * BLOCK].map(|len| ParamSpec::new("x", vec![len], kind));
        let layout = Layout::new(specs.into());
        let gradient: Vec<f32> = (0..layout.len()).map(|i| (i as f32 * 0.37).sin() * 1e3).collect();
        let seen = |owners: &Owners, rank| {
            let mut squares = BlockSquares::new(&layout);
            for run in owners.runs_of(rank) {
                for slice in slices(&layout, &run).iter().rev() {
                    squares.see(slice, &gradient[slice.place(&layout)]);
                }
            }
            squares
        };
        let whole = seen(&Owners::everyone(&layout, &[Rank(0)]), Rank(0)).sum();
        let sum: f64 = gradient.iter().map(|g| f64::from(*g) * f64::from(*g)).sum();
        assert!((whole - sum).abs() < 1e-9 * sum);
        for world in 2..6 {
            let ranks: Vec<Rank> = (0..world).map(Rank).collect();
            let owners = Owners::split(&layout, Scope::Element, &ranks, 1);
            let mut merged = BlockSquares::new(&layout);
            for rank in ranks.into_iter().rev() {
                let mut theirs = seen(&owners, rank);
                merged.sums().iter_mut().zip(theirs.sums()).for_each(|(sum, part)| *sum += *part);
            }
            assert_eq!(merged.sum().to_bits(), whole.to_bits(), "{world} ranks");
        }
    }
}
