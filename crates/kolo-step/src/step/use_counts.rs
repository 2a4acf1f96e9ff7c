//! Uses of each span in a step, and unexpected contributions.
//!
//! A parameter that is used k times yields k contributions; reduction is linear, so they are added as they
//! come. Up to the expected number they go into the bucket. Later ones (of a parameter that is used more
//! often than in the step before) are kept here and summed separately when the pass is over. Which
//! contribution is late does not depend on the number of ranks, so neither does the sum.

use std::collections::BTreeMap;
use std::time::Duration;

use kolo_comm::{Group, Op};

use crate::wait_time::timed;
use kolo_optim::SpanId;
use kolo_reduction::Error;

/// Counts of contributions by span.
pub(super) struct UseCounts {
    /// Contributions expected in every shard. It changes only with a complete step: a repeated step must
    /// find the same contributions late, on all ranks, else its bits differ.
    pub(super) expected: Vec<u32>,
    /// True if as many uses are expected as any step has had, where steps use different spans in turn.
    pub(super) expects_most: bool,
    /// Expected counts of the next step, if this one was not as expected.
    next: Option<Vec<u32>>,
    /// Contributions in the current shard.
    now: Vec<u32>,
    /// The most contributions in any shard of this step.
    most: Vec<u32>,
    /// Contributions beyond the expected number, by shard of this rank.
    late: BTreeMap<SpanId, Vec<Option<Vec<f32>>>>,
}

impl UseCounts {
    /// Starts with one expected use of each span.
    pub(super) fn new(spans: usize) -> Self {
        UseCounts {
            expected: vec![1; spans],
            expects_most: false,
            next: None,
            now: vec![0; spans],
            most: vec![0; spans],
            late: BTreeMap::new(),
        }
    }

    pub(super) fn begin_shard(&mut self) {
        self.now.fill(0);
    }

    /// Counts a contribution to a span; returns how many came before it, and how many are expected.
    pub(super) fn count(&mut self, id: SpanId) -> (u32, u32) {
        let now = &mut self.now[id.0];
        *now += 1;
        (*now - 1, self.expected[id.0])
    }

    /// Returns true if the current shard has put a contribution to a span into its buckets; late ones are
    /// kept separately.
    pub(super) fn is_in_bucket(&self, id: SpanId) -> bool {
        self.now[id.0].min(self.expected[id.0]) > 0
    }

    pub(super) fn end_shard(&mut self) {
        self.most.iter_mut().zip(&self.now).for_each(|(most, now)| *most = (*most).max(*now));
    }

    /// For each span: true if no shard has used it. Valid when the ranks have agreed on a step.
    pub(super) fn unused(&self) -> Vec<bool> {
        self.next.as_ref().unwrap_or(&self.expected).iter().map(|uses| *uses == 0).collect()
    }

    /// Ends a complete step: clears its counts, and sets the expected ones to those observed.
    pub(super) fn end_step(&mut self) {
        if let Some(next) = self.next.take() {
            let before = std::mem::replace(&mut self.expected, next);
            if self.expects_most {
                self.expected.iter_mut().zip(before).for_each(|(uses, before)| *uses = before.max(*uses));
            }
        }
        self.most.fill(0);
        self.late.clear();
    }

    /// Returns true if this step was not as expected.
    pub(super) fn is_unexpected(&self) -> bool {
        self.most != self.expected
    }

    /// Keeps a contribution beyond the expected number, of the `shard`-th of this rank's `shards`.
    pub(super) fn keep_late(&mut self, id: SpanId, gradient: &[f32], shard: usize, shards: usize) {
        let kept = self.late.entry(id).or_insert_with(|| vec![None; shards]);
        match &mut kept[shard] {
            Some(sum) => sum.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += g),
            none => *none = Some(gradient.to_vec()),
        }
    }

    /// Removes and returns the late contributions to a span, for each of this rank's `shards`.
    pub(super) fn take_late(&mut self, id: SpanId, shards: usize) -> Vec<Option<Vec<f32>>> {
        self.late.remove(&id).unwrap_or_else(|| vec![None; shards])
    }

    /// Exchanges how often each span was used in any shard of `group` (without one: of this rank); these
    /// counts are expected once the step is complete. Returns the spans that were used more often than
    /// expected so far: those have late contributions.
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
