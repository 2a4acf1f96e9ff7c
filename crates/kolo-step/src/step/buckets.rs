//! All buckets of a step.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use kolo_comm::{Group, Timing};

use super::bucket_state::{BucketState, BucketTiming, Stage};
use super::owned_bucket::OwnedBucket;
use super::owned_sum::OwnedSum;
use super::parts::InFlight;
use super::use_counts::UseCounts;
use crate::division::Division;
use kolo_optim::{Layout, SpanId};
use kolo_reduction::Error;
use kolo_reduction::reduction::{Context, FinishedShard, Reducer, Reduction};
use kolo_reduction::state::{StateKind, StateName, Visit};
use kolo_reduction::{Bucket, Slice};
use kolo_sampler::Assignment;

/// All buckets, in the order in which they become ready.
pub(super) struct Buckets {
    pub(super) states: Vec<BucketState>,
    /// Places of every span's slices, in the span's order: bucket, and index of the slice in the bucket.
    pub(super) places: Vec<Vec<(usize, usize)>>,
    /// Those in flight, where a rank keeps only its own parts of their sums.
    pub(super) in_flight: InFlight,
}

impl Buckets {
    /// Returns no buckets, which take no gradients.
    pub(super) fn none(layout: &Layout) -> Self {
        let places = vec![Vec::new(); layout.spans().len()];
        Buckets { states: Vec::new(), places, in_flight: InFlight::default() }
    }

    /// Builds buckets with this content, for the shards of one rank of `group`, divided among owners if there
    /// are any.
    pub(super) fn new(
        plan: Vec<Bucket>,
        reducer: &dyn Reducer,
        layout: &Layout,
        group: &Arc<Group>,
        assignment: &Assignment,
        division: Option<&Division>,
    ) -> Result<Self, Error> {
        let mut buckets = Self::none(layout);
        for bucket in plan {
            for (slice, Slice { span, .. }) in bucket.slices.iter().enumerate() {
                buckets.places[span.0].push((buckets.states.len(), slice));
            }
            let number = buckets.states.len();
            let owned = division.map(|division| OwnedBucket::new(&bucket, division, layout, group));
            let reduction: Box<dyn Reduction> = match owned.as_ref().and_then(OwnedBucket::keeps) {
                Some((kept, memory)) => {
                    let (group, shards) = (group.clone(), assignment.shards.clone());
                    Box::new(OwnedSum::new(group, bucket.len, shards, kept, memory))
                }
                None => reducer.build(&Context { group, layout, bucket: &bucket, assignment })?,
            };
            buckets.states.push(BucketState::new(number, bucket, owned, reduction));
        }
        Ok(buckets)
    }

    /// Visits what `reducer` keeps from step to step: the state of each of this rank's `shards`, then that of
    /// the job.
    pub(super) fn visit_state(
        &mut self,
        layout: &Layout,
        reducer: &dyn Reducer,
        shards: Range<usize>,
        visit: &mut Visit<'_>,
    ) {
        for (own, shard) in shards.enumerate() {
            for (kind, name) in reducer.shard_state().iter().enumerate() {
                let name = StateName::of_shard(StateKind::Reduction, *name, shard);
                for BucketState { bucket, reduction, .. } in &mut self.states {
                    let kept = reduction.shard_state().into_iter().nth(kind);
                    if let Some(kept) = kept.and_then(|shards| shards.get_mut(own)) {
                        bucket.visit_state(layout, &name, kept, visit);
                    }
                }
            }
        }
        for (kind, name) in reducer.common_state().iter().enumerate() {
            let name = StateName::of_job(StateKind::Reduction, *name);
            for BucketState { bucket, reduction, .. } in &mut self.states {
                if let Some(kept) = reduction.common_state().into_iter().nth(kind) {
                    bucket.visit_state(layout, &name, kept, visit);
                }
            }
        }
    }

    /// Returns true if the sum of any bucket is deferred.
    pub(super) fn are_deferred(&self) -> bool {
        self.states.iter().any(BucketState::is_deferred)
    }

    /// Exchanges the places of the deferred sums' parts with the other ranks, and waits for theirs.
    pub(super) fn defer(&mut self, group: &Group, assignment: &Assignment) -> Result<(), Error> {
        let (mut deferred, mut parts) = (Vec::new(), Vec::new());
        for state in &mut self.states {
            if let Some(own) = state.reduction.defer(assignment) {
                deferred.push(state);
                parts.push(own);
            }
        }
        let started = Instant::now();
        let sums = group.defer_sums(parts)?;
        let announced = Timing { started, ended: Instant::now() };
        for (state, sum) in deferred.into_iter().zip(sums) {
            state.launched();
            state.reduction.deferred(sum, announced);
        }
        Ok(())
    }

    /// Announces that from the next step on results are read once wherever possible.
    pub(super) fn will_be_read_once(&mut self) {
        self.states.iter_mut().for_each(|state| state.reduction.will_be_read_once());
    }

    /// The content of all buckets.
    pub(super) fn plan(&self) -> impl Iterator<Item = &Bucket> {
        self.states.iter().map(|state| &state.bucket)
    }

    /// The buckets that hold a span's elements.
    pub(super) fn of_span(&self, id: SpanId) -> Range<usize> {
        let places = &self.places[id.0];
        let bucket = |place: Option<&(usize, usize)>| place.map(|(bucket, _)| *bucket);
        bucket(places.first()).unwrap_or(0)..bucket(places.last()).map_or(0, |last| last + 1)
    }

    /// Takes over the timings of buckets with the same content.
    pub(super) fn keep_timings(&mut self, old: &[BucketTiming]) {
        self.states.iter_mut().zip(old).for_each(|(state, timing)| state.timing = *timing);
    }

    /// Begins a shard's pass, with the number of contributions that each span expects.
    pub(super) fn begin_shard(&mut self, expected: &[u32]) {
        for state in &mut self.states {
            let owed = state.bucket.slices.iter().map(|slice| expected[slice.span.0]).sum();
            state.stage = Stage::Collecting { owed };
        }
    }

    /// Ends a shard's pass: adds it in all buckets that have not been launched yet.
    pub(super) fn end_shard(&mut self, uses: &UseCounts, shard: FinishedShard) {
        let here = self.states.iter_mut().filter(|state| !state.is_launched());
        here.for_each(|state| state.end_shard(uses, shard));
    }

    /// Timing of each bucket's last completed reduction.
    pub(super) fn timings(&self) -> Vec<BucketTiming> {
        self.states.iter().map(|state| state.timing).collect()
    }

    pub(super) fn reset(&mut self) {
        self.in_flight = InFlight::default();
        self.states.iter_mut().for_each(BucketState::reset);
    }
}
