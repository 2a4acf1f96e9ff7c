//! The sum of squares of a gradient that comes in slices, in the same bits for any cut.

use crate::buckets::{BLOCK, Slice};
use kolo_optim::Layout;
use kolo_optim::norm::sum_of_squares;

/// Sums of squares by tensor and block. They come in any order and are added in the model's: the cuts of
/// tensors into buckets make no difference.
#[derive(Default)]
pub struct BlockSquares(Vec<Vec<f64>>);

impl BlockSquares {
    /// Starts with zeros.
    pub fn new(layout: &Layout) -> Self {
        BlockSquares(layout.spans().iter().map(|span| vec![0.0; span.len.div_ceil(BLOCK)]).collect())
    }

    /// Sums the squares of a slice; replaces an earlier sum of it.
    pub fn see(&mut self, slice: &Slice, gradient: &[f32]) {
        let blocks = &mut self.0[slice.span.0][slice.elements.start / BLOCK..];
        blocks.iter_mut().zip(gradient.chunks(BLOCK)).for_each(|(sum, block)| *sum = sum_of_squares(block));
    }

    /// The sum over all elements.
    pub fn sum(&self) -> f64 {
        self.0.iter().flatten().sum()
    }
}
