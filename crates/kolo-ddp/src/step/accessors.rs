//! Accessors of a step, for the replica and for the observers of steps.

use std::ops::Range;
use std::time::Duration;

use super::bucket_state::BucketTiming;
use super::{Spent, Step};
use crate::buckets::Bucket;
use kolo_optim::SpanId;

impl Step {
    pub(crate) fn shards(&self) -> Range<usize> {
        self.assignment.shards.clone()
    }

    /// Number of shards of every rank.
    pub(crate) fn shares(&self) -> &[usize] {
        &self.assignment.shares
    }

    /// The buckets, in the order in which they become ready.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = &Bucket> {
        self.buckets.plan()
    }

    /// The buckets that hold a span's elements.
    pub(crate) fn buckets_of(&self, id: SpanId) -> Range<usize> {
        self.buckets.of_span(id)
    }

    /// The order in which reductions end.
    pub(crate) fn order(&self) -> Vec<usize> {
        self.launches.buckets().collect()
    }

    /// Returns true if a bucket's reduction is over and it has not been collected.
    pub(crate) fn is_back(&mut self, bucket: usize) -> bool {
        self.buckets.states[bucket].is_back()
    }

    /// Returns true if steps are synchronized, so that all ranks draw the same conclusions.
    pub(crate) fn is_synchronised(&self) -> bool {
        self.synchronise
    }

    /// Returns true in the first steps, in which [`Step::prepare_next`] communicates with the other ranks.
    pub(crate) fn is_profiling(&self) -> bool {
        !self.profile.is_over()
    }

    /// For each bucket of the last step the seconds from the start of this rank's last backward pass until
    /// the bucket was complete; 0 for buckets without a gradient in it.
    pub(crate) fn ready_times(&self) -> &[f64] {
        self.profile.ready()
    }

    /// Timing of each bucket's last completed reduction.
    pub(crate) fn timings(&self) -> Vec<BucketTiming> {
        self.buckets.timings()
    }

    /// Time in which this rank's thread waited for communication since [`Step::take_exposed`].
    pub(crate) fn exposed(&self) -> Duration {
        self.exposed
    }

    /// Returns that time, and counts from 0 again.
    pub(crate) fn take_exposed(&mut self) -> Duration {
        std::mem::take(&mut self.exposed)
    }

    /// Returns the time in which at least one bucket was being reduced, since the last call.
    pub(crate) fn take_wire_time(&mut self) -> Duration {
        self.wire_time.take()
    }

    /// Returns the times of this rank's thread since the last call.
    pub(crate) fn take_spent(&mut self) -> Spent {
        std::mem::take(&mut self.spent)
    }

    /// Adds time in which this rank's thread waited for other communication than the step's.
    pub(crate) fn add_exposed(&mut self, time: Duration) {
        self.exposed += time;
    }
}
