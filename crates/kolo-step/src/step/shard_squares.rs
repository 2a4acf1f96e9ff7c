//! The squared norm of each shard's own gradient, for the noise scale.
//!
//! A contribution is squared as it arrives, while it is in the cache, before any bucket: so the numbers
//! depend neither on buckets nor on the reduction. Contributions to a tensor that is used several times are
//! added up first, in a copy. The results travel with the agreement.

use std::collections::BTreeMap;

use crate::noise_scale::of_shard;
use kolo_optim::norm::sum_of_squares;
use kolo_optim::{Layout, SpanId};

/// Squared norms of this rank's shards so far.
pub(super) struct ShardSquares {
    /// Sums of squares of the shard whose pass is running, by tensor.
    squares: Vec<f64>,
    /// Sums so far of its tensors that are used several times.
    several: BTreeMap<SpanId, Vec<f32>>,
    /// Number of samples of its loss.
    samples: f64,
    /// Results of the shards whose passes are over.
    done: Vec<f64>,
}

impl ShardSquares {
    pub(super) fn new(layout: &Layout) -> Self {
        let squares = vec![0.0; layout.spans().len()];
        ShardSquares { squares, several: BTreeMap::new(), samples: 0.0, done: Vec::new() }
    }

    pub(super) fn begin_shard(&mut self, samples: f64) {
        self.samples = samples;
        self.squares.fill(0.0);
        self.several.clear();
    }

    /// Takes a contribution to a tensor: `before` came before it, and `expected` are expected in all.
    pub(super) fn add(&mut self, layout: &Layout, id: SpanId, gradient: &[f32], before: u32, expected: u32) {
        if !layout.span(id).spec.kind.is_trained() {
            return;
        }
        match self.several.get_mut(&id) {
            Some(sum) => sum.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += g),
            None if before == 0 && expected > 1 => drop(self.several.insert(id, gradient.to_vec())),
            None if before == 0 => self.squares[id.0] = sum_of_squares(gradient),
            // The first contribution is in its bucket already: this step yields no number, whichever rank
            // has the shard. The next step expects as many.
            None => self.squares[id.0] = f64::NAN,
        }
    }

    pub(super) fn end_shard(&mut self) {
        for (id, sum) in std::mem::take(&mut self.several) {
            self.squares[id.0] = sum_of_squares(&sum);
        }
        self.done.push(of_shard(self.squares.iter().sum(), self.samples));
    }

    pub(super) fn reset(&mut self) {
        self.done.clear();
    }

    /// Results of this rank's shards, in their order.
    pub(super) fn done(&self) -> &[f64] {
        &self.done
    }
}
