//! How a replica measures the noise scale: what it sees of the summed gradient, and what the shards have
//! told.

use crate::buckets::{Bucket, Slice};
use crate::noise_scale::{NoiseScale, Norms};
use crate::step::Totals;
use crate::transform::BlockSquares;
use kolo_optim::Layout;

/// The averages after the last complete step, and the squares of the one that runs.
pub(crate) struct NoiseProbe {
    /// `None` where it is not measured.
    squares: Option<BlockSquares>,
    pub(crate) known: NoiseScale,
}

impl NoiseProbe {
    pub(crate) fn new(is_on: bool, layout: &Layout) -> Self {
        NoiseProbe { squares: is_on.then(|| BlockSquares::new(layout)), known: NoiseScale::default() }
    }

    /// Whether steps are measured.
    pub(crate) fn is_on(&self) -> bool {
        self.squares.is_some()
    }

    /// Looks at a bucket of the summed gradient.
    pub(crate) fn see(&mut self, layout: &Layout, bucket: &Bucket, gradient: &[f32]) {
        let Some(squares) = &mut self.squares else { return };
        let trained = |slice: &&Slice| layout.span(slice.span).spec.kind.is_trained();
        bucket.slices.iter().filter(trained).for_each(|slice| squares.see(slice, &gradient[slice.range()]));
    }

    /// The averages with the step that ends, all of whose gradient has been seen, `unscale` times which is
    /// that of the loss; as they were where it cannot be measured. They count once the step is complete: it
    /// may be done again.
    pub(crate) fn with(&self, totals: &Totals, unscale: f64) -> Option<NoiseScale> {
        let squares = self.squares.as_ref()?.sum();
        let norms = Norms::of(&totals.received.by_shard, squares, totals.count);
        Some(norms.map_or(self.known, |norms| self.known.with(norms.times(unscale))))
    }

    /// The averages after a step that is skipped: as they were.
    pub(crate) fn without(&self) -> Option<NoiseScale> {
        self.is_on().then_some(self.known)
    }
}
