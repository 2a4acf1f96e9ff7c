//! What can be seen of a step from outside: by the replica, and by those who observe it.

use std::ops::Range;
use std::time::Duration;

use super::bucket_state::BucketTiming;
use super::{Spent, Step};
use crate::buckets::Bucket;
use kolo_optim::SpanId;

impl Step {
    /// This rank's shards.
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

    /// The buckets that a span's elements are in.
    pub(crate) fn buckets_of(&self, id: SpanId) -> Range<usize> {
        self.buckets.of_span(id)
    }

    /// The order in which buckets come back.
    pub(crate) fn order(&self) -> Vec<usize> {
        self.launches.buckets().collect()
    }

    /// Whether a bucket's reduction is over and nobody has collected it.
    pub(crate) fn is_back(&mut self, bucket: usize) -> bool {
        self.buckets.states[bucket].is_back()
    }

    /// Whether steps are synchronised, so that all ranks draw the same conclusions.
    pub(crate) fn is_synchronised(&self) -> bool {
        self.synchronise
    }

    /// Whether this is one of the first steps, in which [`Step::prepare_next`] has to talk to the other
    /// ranks.
    pub(crate) fn is_profiling(&self) -> bool {
        !self.profile.is_over()
    }

    /// For each bucket of the last step the seconds from the start of this rank's last backward pass until
    /// its gradients were there; 0 for buckets that got none in it.
    pub(crate) fn ready_times(&self) -> &[f64] {
        self.profile.ready()
    }

    /// Each bucket's last reduction that is over.
    pub(crate) fn timings(&self) -> Vec<BucketTiming> {
        self.buckets.timings()
    }

    /// Time in which this rank's thread waited for communication since [`Step::take_exposed`].
    pub(crate) fn exposed(&self) -> Duration {
        self.exposed
    }

    /// The same, which counts from 0 again.
    pub(crate) fn take_exposed(&mut self) -> Duration {
        std::mem::take(&mut self.exposed)
    }

    /// What this rank's thread has spent its time on since this was last called.
    pub(crate) fn take_spent(&mut self) -> Spent {
        std::mem::take(&mut self.spent)
    }

    /// This rank's thread has waited so long for communication that is none of the step's.
    pub(crate) fn add_exposed(&mut self, time: Duration) {
        self.exposed += time;
    }
}
