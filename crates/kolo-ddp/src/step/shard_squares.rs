//! The squared norm of each shard's own gradient, for the noise scale.
//!
//! A contribution is looked at where it comes in, while it is in the cache, before any bucket: so the numbers
//! do not depend on buckets, nor on the reduction. Contributions to a tensor that is used several times are
//! added up first, in a copy. They travel with the agreement.

use std::collections::BTreeMap;

use crate::noise_scale::of_shard;
use kolo_optim::norm::sum_of_squares;
use kolo_optim::{Layout, SpanId};

/// What this rank's shards have so far.
pub(super) struct ShardSquares {
    /// Sums of squares of the shard whose pass is under way, by tensor.
    squares: Vec<f64>,
    /// Of its tensors that are used several times the sums so far.
    several: BTreeMap<SpanId, Vec<f32>>,
    /// What its loss is summed over.
    samples: f64,
    /// What the shards say whose passes are over.
    done: Vec<f64>,
}

impl ShardSquares {
    pub(super) fn new(layout: &Layout) -> Self {
        let squares = vec![0.0; layout.spans().len()];
        ShardSquares { squares, several: BTreeMap::new(), samples: 0.0, done: Vec::new() }
    }

    /// A pass begins.
    pub(super) fn begin_shard(&mut self, samples: f64) {
        self.samples = samples;
        self.squares.fill(0.0);
        self.several.clear();
    }

    /// Takes a contribution to a tensor, of which so many came before it and so many are expected.
    pub(super) fn add(&mut self, layout: &Layout, id: SpanId, gradient: &[f32], before: u32, expected: u32) {
        if !layout.span(id).spec.kind.is_trained() {
            return;
        }
        match self.several.get_mut(&id) {
            Some(sum) => sum.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += g),
            None if before == 0 && expected > 1 => drop(self.several.insert(id, gradient.to_vec())),
            None if before == 0 => self.squares[id.0] = sum_of_squares(gradient),
            // The first one is gone into its bucket: this step tells nothing, whoever has the shard. The next
            // one expects as many.
            None => self.squares[id.0] = f64::NAN,
        }
    }

    /// A pass is over.
    pub(super) fn end_shard(&mut self) {
        for (id, sum) in std::mem::take(&mut self.several) {
            self.squares[id.0] = sum_of_squares(&sum);
        }
        self.done.push(of_shard(self.squares.iter().sum(), self.samples));
    }

    /// A new step.
    pub(super) fn reset(&mut self) {
        self.done.clear();
    }

    /// What this rank's shards say, in their order.
    pub(super) fn done(&self) -> &[f64] {
        &self.done
    }
}
