//! Accessors of a step, for the replica and for the observers of steps.

use std::ops::Range;
use std::time::Duration;

use super::bucket_state::BucketTiming;
use super::{Spent, Step};
use kolo_optim::SpanId;
use kolo_reduction::Bucket;

impl Step {
    /// Shards of this rank.
    pub fn shards(&self) -> Range<usize> {
        self.ranks.assignment.shards.clone()
    }

    /// Number of shards of every rank.
    pub fn shares(&self) -> &[usize] {
        &self.ranks.assignment.shares
    }

    /// The buckets, in the order in which they become ready.
    pub fn buckets(&self) -> impl Iterator<Item = &Bucket> {
        self.buckets.plan()
    }

    /// The buckets that hold a span's elements.
    pub fn buckets_of(&self, id: SpanId) -> Range<usize> {
        self.buckets.of_span(id)
    }

    /// The order in which reductions end.
    pub fn order(&self) -> Vec<usize> {
        self.launches.buckets().collect()
    }

    /// Returns true if a bucket's reduction is over and it has not been collected.
    pub fn is_back(&mut self, bucket: usize) -> bool {
        self.buckets.states[bucket].is_back()
    }

    /// Returns true if steps are synchronized, so that all ranks draw the same conclusions.
    pub fn is_synchronized(&self) -> bool {
        self.options.synchronize
    }

    /// Returns true in the first steps, in which [`Step::prepare_next`] communicates with the other ranks.
    pub fn is_profiling(&self) -> bool {
        !self.profile.is_over()
    }

    /// For each bucket of the last step the seconds from the start of this rank's last backward pass until
    /// the bucket was complete; 0 for buckets without a gradient in it.
    pub fn ready_times(&self) -> &[f64] {
        self.profile.ready()
    }

    /// Timing of each bucket's last completed reduction.
    pub fn timings(&self) -> Vec<BucketTiming> {
        self.buckets.timings()
    }

    /// Time in which this rank's thread waited for communication since [`Step::take_exposed`].
    pub fn exposed(&self) -> Duration {
        self.times.exposed
    }

    /// Returns that time, and counts from 0 again.
    pub fn take_exposed(&mut self) -> Duration {
        std::mem::take(&mut self.times.exposed)
    }

    /// Returns the time in which at least one bucket was being reduced, since the last call.
    pub fn take_wire_time(&mut self) -> Duration {
        self.times.wire.take()
    }

    /// Returns the times of this rank's thread since the last call.
    pub fn take_spent(&mut self) -> Spent {
        std::mem::take(&mut self.times.spent)
    }

    /// Adds time in which this rank's thread waited for other communication than the step's.
    pub fn add_exposed(&mut self, time: Duration) {
        self.times.exposed += time;
    }
}
