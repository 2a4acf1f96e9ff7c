//! Clipping by the global norm (Pascanu, Mikolov & Bengio 2013, algorithm 1).

use crate::buckets::{BLOCK, Slice};
use crate::layout::{Kind, Layout};

/// The squares of a gradient's trained elements, which come in any order and are added in the model's, block by block: how
/// they were cut into buckets does not matter.
pub(crate) struct Squares(Vec<Vec<f64>>);

impl Squares {
    pub(crate) fn new(layout: &Layout) -> Self {
        Squares(layout.spans().iter().map(|span| vec![0.0; span.len.div_ceil(BLOCK)]).collect())
    }

    /// Takes the gradient of a slice.
    pub(crate) fn put(&mut self, slice: &Slice, gradient: &[f32]) {
        let blocks = &mut self.0[slice.span.0][slice.elements.start / BLOCK..];
        blocks.iter_mut().zip(gradient.chunks(BLOCK)).for_each(|(sum, block)| *sum = sum_of_squares(block));
    }

    pub(crate) fn total(&self, layout: &Layout) -> f64 {
        let spans = self.0.iter().zip(layout.spans());
        spans.filter(|(_, span)| span.spec.kind != Kind::Statistic).flat_map(|(blocks, _)| blocks).sum()
    }
}

/// The sum of squares, in double precision.
///
/// Eight running sums, so that vector instructions can be used; their number is fixed, so the bits are, too.
fn sum_of_squares(values: &[f32]) -> f64 {
    let mut sums = [0.0f64; 8];
    let mut chunks = values.chunks_exact(8);
    for chunk in &mut chunks {
        sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += f64::from(*x) * f64::from(*x));
    }
    let rest: f64 = chunks.remainder().iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
    sums.iter().sum::<f64>() + rest
}

/// What to multiply gradients by so that their norm is at most `limit`; the 10⁻⁶ is PyTorch's.
pub(crate) fn factor(norm: f64, limit: f64) -> f64 {
    (limit / (norm + 1e-6)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn norm_and_factor() {
        let values: Vec<f32> = (1..=20).map(|x| x as f32).collect();
        assert_eq!(sum_of_squares(&values), 2870.0);
        assert_eq!(factor(0.5, 1.0), 1.0);
        assert!((factor(10.0, 1.0) - 0.1).abs() < 1e-6);
    }
}
