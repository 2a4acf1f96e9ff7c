//! How often each span was used, and what came unexpectedly.

use std::collections::BTreeMap;

use crate::layout::SpanId;

/// Counts of contributions by span.
pub(super) struct Uses {
    /// Contributions expected in every shard.
    pub(super) expected: Vec<u32>,
    /// Contributions in the current shard, and the most in any shard of this step.
    pub(super) now: Vec<u32>,
    pub(super) most: Vec<u32>,
    /// What came beyond the expected number, by shard of this rank.
    late: BTreeMap<SpanId, Vec<Option<Vec<f32>>>>,
}

impl Uses {
    /// One use of each is expected.
    pub(super) fn new(spans: usize) -> Self {
        Uses { expected: vec![1; spans], now: vec![0; spans], most: vec![0; spans], late: BTreeMap::new() }
    }

    pub(super) fn begin_shard(&mut self) {
        self.now.fill(0);
    }

    pub(super) fn end_shard(&mut self) {
        self.most.iter_mut().zip(&self.now).for_each(|(most, now)| *most = (*most).max(*now));
    }

    pub(super) fn end_step(&mut self) {
        self.most.fill(0);
        self.late.clear();
    }

    /// Whether this step was not as expected.
    pub(super) fn surprising(&self) -> bool {
        self.most != self.expected
    }

    /// Keeps a contribution to the `shard`-th of this rank's `shards`, beyond the expected number.
    pub(super) fn keep_late(&mut self, id: SpanId, gradient: &[f32], shard: usize, shards: usize) {
        let kept = self.late.entry(id).or_insert_with(|| vec![None; shards]);
        match &mut kept[shard] {
            Some(sum) => sum.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += g),
            none => *none = Some(gradient.to_vec()),
        }
    }

    /// What came late for a span, by shard.
    pub(super) fn take_late(&mut self, id: SpanId, shards: usize) -> Vec<Option<Vec<f32>>> {
        self.late.remove(&id).unwrap_or_else(|| vec![None; shards])
    }
}
