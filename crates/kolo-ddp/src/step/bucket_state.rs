//! The buckets of a step: what each of them has got, and whether it is on its way.

use std::time::{Duration, Instant};

use kolo_comm::{Group, Timing};
use kolo_trace::What;

use super::finiteness;
use super::state_before::StateBefore;
use super::use_counts::UseCounts;
use crate::buckets::{Bucket, Slice};
use crate::error::Error;
use crate::reduction::{Context, FinishedShard, ReadyStep, Reducer, Reduction};
use crate::shares::Assignment;
use crate::timed::timed_as;
use kolo_optim::{Layout, SpanId};

/// How long one bucket's reduction took.
#[derive(Clone, Copy, Debug)]
pub struct BucketTiming {
    /// Bytes of gradient.
    pub bytes: usize,
    /// Bytes in which one shard's part of it travels, if the reduction compresses it; else the same.
    pub wire_bytes: usize,
    /// From its first message until it was back.
    pub seconds: f64,
    /// Seconds from the start of this rank's last backward pass until all of its gradient was there; 0 where
    /// none came in it.
    pub ready: f64,
    /// Seconds of this rank's thread from the end of a step until the next one needed its values, without
    /// waiting and updates; 0 where they are updated at the end of the step.
    pub needed: f64,
    /// Seconds for which this rank's thread waited for it.
    pub exposed: f64,
}

/// One bucket in the step that runs.
pub(super) struct BucketState {
    pub(super) bucket: Bucket,
    reduction: Box<dyn Reduction>,
    before: StateBefore,
    /// Contributions that the current shard still owes.
    pub(super) owed: u32,
    /// Whether its reduction has been started in this step.
    pub(super) is_launched: bool,
    /// Whether its result changes the values still.
    pub(super) is_due: bool,
    /// Whether that has been waited for.
    is_waited_for: bool,
    /// Its last reduction that is over.
    timing: BucketTiming,
    /// Its number, and for the timeline the step in which it was launched last.
    number: usize,
    launched_in: u64,
}

impl BucketState {
    fn new(number: usize, bucket: Bucket, reduction: Box<dyn Reduction>) -> Self {
        let bytes = bucket.len * size_of::<f32>();
        let wire_bytes = reduction.wire_bytes().unwrap_or(bytes);
        let timing = BucketTiming { bytes, wire_bytes, seconds: 0.0, ready: 0.0, needed: 0.0, exposed: 0.0 };
        let before = StateBefore::default();
        BucketState {
            bucket,
            reduction,
            before,
            owed: 0,
            is_launched: false,
            is_due: false,
            is_waited_for: false,
            timing,
            number,
            launched_in: 0,
        }
    }

    /// Takes a contribution to one of its slices, the first one to that slice in this shard or a further one,
    /// part by part, at which `look` looks just before.
    pub(super) fn add(&mut self, slice: usize, gradient: &[f32], first: bool, mut look: impl FnMut(&[f32])) {
        let Slice { offset, elements, .. } = &self.bucket.slices[slice];
        let gradient = &gradient[elements.clone()];
        for run in finiteness::runs(gradient.len()) {
            look(&gradient[run.clone()]);
            self.reduction.add(offset + run.start, &gradient[run], first);
        }
        self.owed -= 1;
    }

    /// Zeros for spans without a gradient, then the shard joins the others.
    pub(super) fn end_shard(&mut self, uses: &UseCounts, shard: FinishedShard) {
        for slice in &self.bucket.slices {
            if !uses.is_in_bucket(slice.span) {
                self.reduction.add_nothing(slice.offset, slice.elements.len());
            }
        }
        self.reduction.end_shard(shard);
    }

    /// Starts the reduction over the shards of all ranks; without a `group`, over those of this rank.
    pub(super) fn launch(&mut self, group: Option<&Group>, assignment: &Assignment, step: &ReadyStep) {
        self.launched();
        self.reduction.start(group, assignment, step);
    }

    fn launched(&mut self) {
        (self.is_launched, self.is_waited_for) = (true, false);
        self.launched_in = kolo_trace::current_step();
    }

    /// Whether nothing sets out in the step that runs ([`Reduction::is_lent`]).
    pub(super) fn is_lent(&self) -> bool {
        self.reduction.is_lent()
    }

    /// Whether its reduction is over.
    pub(super) fn is_back(&mut self) -> bool {
        self.reduction.is_over()
    }

    /// Waits until the reduction is over.
    ///
    /// # Errors
    ///
    /// It failed (naming the rank), now or before.
    pub(super) fn wait(&mut self, exposed: &mut Duration) -> Result<(), Error> {
        if self.is_waited_for {
            return self.reduction.wait().map(drop);
        }
        self.is_waited_for = true;
        let (bucket, before) = (self.in_timeline(), *exposed);
        let ran = timed_as(exposed, || What::WaitBucket(bucket), || self.reduction.wait())?;
        self.timing.exposed = (*exposed - before).as_secs_f64();
        if let Some(ran) = ran {
            self.timing.seconds = (ran.ended - ran.started).as_secs_f64();
            self.timing.wire_bytes = self.reduction.wire_bytes().unwrap_or(self.timing.bytes);
            kolo_trace::span_of(self.launched_in, ran.started, ran.ended, || {
                What::Reduce(self.in_timeline())
            });
        }
        Ok(())
    }

    /// What the timeline says of it.
    fn in_timeline(&self) -> kolo_trace::Bucket {
        let BucketTiming { bytes, wire_bytes, .. } = self.timing;
        kolo_trace::Bucket { number: self.number, bytes, wire_bytes }
    }

    /// All of its gradient is there, so many seconds after the start of the pass.
    pub(super) fn complete(&mut self, ready: f64) {
        self.timing.ready = ready;
        kolo_trace::mark(|| What::Ready(self.in_timeline()));
    }

    /// From `start` to `end` its values have been updated, which the next step needed after so many seconds.
    pub(super) fn updated(&mut self, start: Instant, end: Instant, needed: f64) {
        self.timing.needed = needed;
        kolo_trace::span_of(self.launched_in, start, end, || What::Update(self.in_timeline()));
    }

    /// The bucket and what its reduction has given.
    pub(super) fn result(&mut self) -> (&Bucket, &mut [f32]) {
        (&self.bucket, self.reduction.result())
    }

    /// The bucket and its reduction, for who reads what it gives once.
    pub(super) fn reduced(&mut self) -> (&Bucket, &mut dyn Reduction) {
        (&self.bucket, &mut *self.reduction)
    }

    /// A step begins that may be skipped.
    pub(super) fn remember(&mut self) {
        self.before.remember(&mut *self.reduction);
    }

    /// What its reduction, which is over, keeps is as it was before the step.
    pub(super) fn restore(&mut self) {
        self.before.restore(&mut *self.reduction);
    }

    fn reset(&mut self) {
        (self.is_launched, self.is_due) = (false, false);
        self.reduction.reset();
    }
}

/// All buckets, in the order in which they become ready.
pub(super) struct Buckets {
    pub(super) states: Vec<BucketState>,
    /// Where every span's slices are, in the span's order: bucket, and which of the bucket's slices.
    pub(super) places: Vec<Vec<(usize, usize)>>,
}

impl Buckets {
    /// Buckets with this content, for the shards of one rank of `group`.
    ///
    /// # Errors
    ///
    /// Memory cannot be had.
    pub(super) fn new(
        plan: Vec<Bucket>,
        reducer: &dyn Reducer,
        layout: &Layout,
        group: &Group,
        assignment: &Assignment,
    ) -> Result<Self, Error> {
        let mut buckets = Buckets { states: Vec::new(), places: vec![Vec::new(); layout.spans().len()] };
        for bucket in plan {
            for (slice, Slice { span, .. }) in bucket.slices.iter().enumerate() {
                buckets.places[span.0].push((buckets.states.len(), slice));
            }
            let reduction = reducer.build(&Context { group, layout, bucket: &bucket, assignment })?;
            let number = buckets.states.len();
            buckets.states.push(BucketState::new(number, bucket, reduction));
        }
        Ok(buckets)
    }

    /// What is kept from step to step for each of this rank's shards: for each name of
    /// [`Reducer::shard_state`] the values in the order of flat memory, one after another.
    pub(super) fn shard_state(&mut self, layout: &Layout) -> Vec<Vec<f32>> {
        let mut flat: Vec<Vec<f32>> = Vec::new();
        for BucketState { bucket, reduction, .. } in &mut self.states {
            let kinds = reduction.shard_state();
            let (len, count) = (layout.len(), kinds.len());
            for (kind, kept) in kinds.into_iter().enumerate() {
                flat.resize_with(kept.len(), || vec![0.0; count * len]);
                let flat = flat.iter_mut().map(|flat| &mut flat[kind * len..][..len]);
                flat.zip(kept).for_each(|(flat, kept)| bucket.to_flat(layout, kept, flat));
            }
        }
        flat
    }

    /// Goes on with what was kept by others.
    pub(super) fn set_shard_state(&mut self, layout: &Layout, flat: &[Vec<f32>]) {
        let len = layout.len();
        for BucketState { bucket, reduction, .. } in &mut self.states {
            for (kind, kept) in reduction.shard_state().into_iter().enumerate() {
                let flat = flat.iter().map(|flat| &flat[kind * len..][..len]);
                flat.zip(kept).for_each(|(flat, kept)| bucket.take_flat(layout, flat, kept));
            }
        }
    }

    /// What is kept from step to step and the same on all ranks: for each name of [`Reducer::common_state`]
    /// the values in the order of flat memory.
    pub(super) fn common_state(&mut self, layout: &Layout) -> Vec<Vec<f32>> {
        let mut flat: Vec<Vec<f32>> = Vec::new();
        for BucketState { bucket, reduction, .. } in &mut self.states {
            let kinds = reduction.common_state();
            flat.resize_with(kinds.len(), || vec![0.0; layout.len()]);
            flat.iter_mut().zip(kinds).for_each(|(flat, kept)| bucket.to_flat(layout, kept, flat));
        }
        flat
    }

    /// Goes on with what the others have.
    pub(super) fn set_common_state(&mut self, layout: &Layout, flat: &[Vec<f32>]) {
        for BucketState { bucket, reduction, .. } in &mut self.states {
            let kinds = reduction.common_state();
            flat.iter().zip(kinds).for_each(|(flat, kept)| bucket.take_flat(layout, flat, kept));
        }
    }

    /// Whether any of them is only lent.
    pub(super) fn are_lent(&self) -> bool {
        self.states.iter().any(BucketState::is_lent)
    }

    /// Tells the other ranks what is lent, and waits until they have told the same.
    ///
    /// # Errors
    ///
    /// As [`Group::defer_sums`].
    pub(super) fn lend(&mut self, group: &Group, assignment: &Assignment) -> Result<(), Error> {
        let (mut lent, mut parts) = (Vec::new(), Vec::new());
        for state in &mut self.states {
            if let Some(own) = state.reduction.lend(assignment) {
                lent.push(state);
                parts.push(own);
            }
        }
        let started = Instant::now();
        let sums = group.defer_sums(parts)?;
        let told = Timing { started, ended: Instant::now() };
        for (state, sum) in lent.into_iter().zip(sums) {
            state.launched();
            state.reduction.lent(sum, told);
        }
        Ok(())
    }

    /// From the next step on what their reductions give is read once wherever possible.
    pub(super) fn will_be_read_once(&mut self) {
        self.states.iter_mut().for_each(|state| state.reduction.will_be_read_once());
    }

    /// What they are made of.
    pub(super) fn plan(&self) -> impl Iterator<Item = &Bucket> {
        self.states.iter().map(|state| &state.bucket)
    }

    /// The buckets that a span's elements are in.
    pub(super) fn of_span(&self, id: SpanId) -> std::ops::Range<usize> {
        let places = &self.places[id.0];
        let bucket = |place: Option<&(usize, usize)>| place.map(|(bucket, _)| *bucket);
        bucket(places.first()).unwrap_or(0)..bucket(places.last()).map_or(0, |last| last + 1)
    }

    /// Takes over the timings of buckets with the same content.
    pub(super) fn keep_timings(&mut self, old: &Buckets) {
        self.states.iter_mut().zip(&old.states).for_each(|(new, old)| new.timing = old.timing);
    }

    /// A shard's pass begins, in which each span owes so many contributions.
    pub(super) fn begin_shard(&mut self, expected: &[u32]) {
        for state in &mut self.states {
            state.owed = state.bucket.slices.iter().map(|slice| expected[slice.span.0]).sum();
        }
    }

    /// A shard's pass is over: those that are still here take what it has given.
    pub(super) fn end_shard(&mut self, uses: &UseCounts, shard: FinishedShard) {
        let here = self.states.iter_mut().filter(|state| !state.is_launched);
        here.for_each(|state| state.end_shard(uses, shard));
    }

    /// Each one's last reduction that is over.
    pub(super) fn timings(&self) -> Vec<BucketTiming> {
        self.states.iter().map(|state| state.timing).collect()
    }

    /// A new step.
    pub(super) fn reset(&mut self) {
        self.states.iter_mut().for_each(BucketState::reset);
    }
}
