//! Measurement of the noise scale, from the summed gradient and from the norms of the shards' gradients.

use crate::noise_scale::{NoiseScale, Norms};
use crate::step::Totals;
use kolo_optim::Layout;
use kolo_reduction::transform::BlockSquares;
use kolo_reduction::{Slice, trained};

/// Averages after the last complete step, and the squares of the current one's gradient.
#[derive(Debug)]
pub struct NoiseProbe {
    /// `None` if the noise scale is not measured.
    squares: Option<BlockSquares>,
    /// Averages after the last complete step.
    pub known: NoiseScale,
}

impl NoiseProbe {
    /// Starts without any step.
    pub fn new(is_on: bool, layout: &Layout) -> Self {
        NoiseProbe { squares: is_on.then(|| BlockSquares::new(layout)), known: NoiseScale::default() }
    }

    /// Returns true if steps are measured.
    pub fn is_on(&self) -> bool {
        self.squares.is_some()
    }

    /// Sums of the squares so far, of jobs in which each rank sees a part of the gradient.
    pub fn partial_sums(&mut self) -> Option<&mut [f64]> {
        self.squares.as_mut().map(BlockSquares::sums)
    }

    /// Adds slices of the summed gradient to the squares.
    pub fn see(&mut self, layout: &Layout, slices: &[Slice], gradient: &[f32]) {
        let Some(squares) = &mut self.squares else { return };
        trained(layout, slices).for_each(|slice| squares.see(slice, &gradient[slice.range()]));
    }

    /// Returns the averages including the step that ends, whose gradient has been seen in full; unchanged
    /// averages if it cannot be measured. `unscale` times that gradient is the gradient of the unscaled
    /// loss. The caller keeps the result only when the step is complete, because the step may be repeated.
    pub fn with(&self, totals: &Totals, unscale: f64) -> Option<NoiseScale> {
        let squares = self.squares.as_ref()?.sum();
        let norms = Norms::of(&totals.received.by_shard, squares, totals.count);
        Some(norms.map_or(self.known, |norms| self.known.with(norms.times(unscale))))
    }

    /// Returns the averages after a skipped step: they are unchanged.
    pub fn without(&self) -> Option<NoiseScale> {
        self.is_on().then_some(self.known)
    }
}
