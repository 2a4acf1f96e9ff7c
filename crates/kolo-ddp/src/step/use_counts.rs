//! How often each span is used in a step, and what came unexpectedly.
//!
//! A parameter used k times is announced k times; reduction is linear, so contributions are added as they
//! come. Up to the expected number they go into the bucket. What comes later (a parameter used more often
//! than in the step before) is kept here and summed apart when the pass is over. Which contribution counts as
//! late does not depend on the number of ranks, so neither does the sum.

use std::collections::BTreeMap;
use std::time::Duration;

use kolo_comm::{Group, Op};

use crate::error::Error;
use crate::timed::timed;
use kolo_optim::SpanId;

/// Counts of contributions by span.
pub(super) struct UseCounts {
    /// Contributions expected in every shard. It changes with a complete step only: one that is done again
    /// has to find late what was late before, on all ranks, else it ends in other bits.
    pub(super) expected: Vec<u32>,
    /// What the next step is to expect, where this one was not as expected.
    next: Option<Vec<u32>>,
    /// Contributions in the current shard.
    now: Vec<u32>,
    /// The most contributions in any shard of this step.
    most: Vec<u32>,
    /// What came beyond the expected number, by shard of this rank.
    late: BTreeMap<SpanId, Vec<Option<Vec<f32>>>>,
}

impl UseCounts {
    /// One use of each span is expected.
    pub(super) fn new(spans: usize) -> Self {
        UseCounts {
            expected: vec![1; spans],
            next: None,
            now: vec![0; spans],
            most: vec![0; spans],
            late: BTreeMap::new(),
        }
    }

    /// A shard's pass begins.
    pub(super) fn begin_shard(&mut self) {
        self.now.fill(0);
    }

    /// Counts a contribution to a span: how many came before it, and how many are expected.
    pub(super) fn count(&mut self, id: SpanId) -> (u32, u32) {
        let now = &mut self.now[id.0];
        *now += 1;
        (*now - 1, self.expected[id.0])
    }

    /// Whether the current shard has put anything for a span into its buckets: what comes late is kept apart.
    pub(super) fn is_in_bucket(&self, id: SpanId) -> bool {
        self.now[id.0].min(self.expected[id.0]) > 0
    }

    /// A shard's pass is over.
    pub(super) fn end_shard(&mut self) {
        self.most.iter_mut().zip(&self.now).for_each(|(most, now)| *most = (*most).max(*now));
    }

    /// When the ranks have agreed on a step: for each span whether no shard has used it.
    pub(super) fn unused(&self) -> Vec<bool> {
        self.next.as_ref().unwrap_or(&self.expected).iter().map(|uses| *uses == 0).collect()
    }

    /// A step is complete: forgets its counts, and expects from now on what it has shown.
    pub(super) fn end_step(&mut self) {
        if let Some(next) = self.next.take() {
            self.expected = next;
        }
        self.most.fill(0);
        self.late.clear();
    }

    /// Whether this step was not as expected.
    pub(super) fn is_surprising(&self) -> bool {
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

    /// What came late for a span, for each of this rank's `shards`.
    pub(super) fn take_late(&mut self, id: SpanId, shards: usize) -> Vec<Option<Vec<f32>>> {
        self.late.remove(&id).unwrap_or_else(|| vec![None; shards])
    }

    /// Finds out how often each span was used in any shard of `group` (without one: of this rank), which is
    /// to be expected once the step is complete, and names the spans that were used more often than expected
    /// so far: contributions to those have come late.
    ///
    /// # Errors
    ///
    /// The collective failed (naming the rank).
    pub(super) fn exchange(
        &mut self,
        group: Option<&Group>,
        exposed: &mut Duration,
    ) -> Result<Vec<SpanId>, Error> {
        let mut most: Vec<i32> = self.most.iter().map(|&uses| uses as i32).collect();
        if let Some(group) = group {
            timed(exposed, "counts of uses", || group.all_reduce(&mut most, Op::Max))?;
        }
        let next: Vec<u32> = most.into_iter().map(|uses| uses as u32).collect();
        let mut late = Vec::new();
        for (index, &uses) in next.iter().enumerate() {
            if uses > self.expected[index] {
                late.push(SpanId(index));
            }
        }
        self.next = Some(next);
        Ok(late)
    }
}
