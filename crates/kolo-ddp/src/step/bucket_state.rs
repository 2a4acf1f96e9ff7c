//! The buckets of a step: what each of them has got, and whether it is on its way.

use std::time::Duration;

use kolo_comm::{Collective, Group, Pending};

use crate::buckets::{Bucket, Slice};
use crate::error::Error;
use crate::layout::{Layout, SpanId};
use crate::shard_sum::ShardSum;
use crate::shares::Assignment;
use crate::timed::timed;

/// How long one bucket's reduction took.
#[derive(Clone, Copy, Debug)]
pub struct BucketTiming {
    /// Bytes of gradient.
    pub bytes: usize,
    /// From its first message until it was back.
    pub seconds: f64,
}

/// One bucket in the step that runs.
pub(super) struct BucketState {
    pub(super) bucket: Bucket,
    sum: ShardSum,
    pending: Option<Pending<f32>>,
    /// Contributions that the current shard still owes.
    pub(super) owed: u32,
    /// Whether its reduction has been started in this step.
    pub(super) is_launched: bool,
    /// Whether its result changes the values still.
    pub(super) is_due: bool,
    /// Its last reduction that is over.
    timing: BucketTiming,
}

impl BucketState {
    fn new(bucket: Bucket, group: &Group, assignment: &Assignment) -> Result<Self, Error> {
        let sum = ShardSum::new(group, bucket.len, assignment.shards.clone())?;
        let timing = BucketTiming { bytes: bucket.len * size_of::<f32>(), seconds: 0.0 };
        Ok(BucketState { bucket, sum, pending: None, owed: 0, is_launched: false, is_due: false, timing })
    }

    /// Takes a contribution to one of its slices, the first one to that slice in this shard or a further one.
    pub(super) fn add(&mut self, slice: usize, gradient: &[f32], first: bool) {
        let Slice { offset, elements, .. } = &self.bucket.slices[slice];
        self.sum.put(*offset, &gradient[elements.clone()], first);
        self.owed -= 1;
    }

    /// Zeros for spans without a gradient, then the shard joins the others.
    pub(super) fn end_shard(&mut self, uses: &[u32], shard: usize) {
        for slice in &self.bucket.slices {
            if uses[slice.span.0] == 0 {
                self.sum.put_zeros(slice.offset, slice.elements.len());
            }
        }
        self.sum.end_shard(shard);
    }

    /// Starts the reduction over the shards of all ranks; without a `group` only this rank's shards are summed.
    pub(super) fn launch(&mut self, group: Option<&Group>, assignment: &Assignment) {
        self.is_launched = true;
        match group {
            Some(group) => {
                let contributions = assignment.contributions.clone();
                let sum = Collective::TreeSum { contributions, len: self.bucket.len };
                self.pending = Some(group.start(sum, self.sum.take()));
            }
            None => self.sum.fold(),
        }
    }

    /// Whether its reduction is over.
    pub(super) fn is_back(&mut self) -> bool {
        self.pending.as_mut().is_some_and(Pending::is_over)
    }

    /// Waits until the reduction is over.
    ///
    /// # Errors
    ///
    /// It failed (naming the rank), now or before.
    pub(super) fn wait(&mut self, exposed: &mut Duration) -> Result<(), Error> {
        let Some(pending) = self.pending.take() else {
            return if self.sum.is_away() { Err(Error::Lost) } else { Ok(()) };
        };
        let (buffer, timing) = timed(exposed, || pending.wait_timed())?;
        self.sum.give_back(buffer);
        self.timing.seconds = (timing.ended - timing.started).as_secs_f64();
        Ok(())
    }

    /// The bucket and what its reduction has given.
    pub(super) fn result(&mut self) -> (&Bucket, &mut [f32]) {
        (&self.bucket, self.sum.result())
    }

    fn reset(&mut self) {
        (self.is_launched, self.is_due) = (false, false);
        self.sum.reset();
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
        layout: &Layout,
        group: &Group,
        assignment: &Assignment,
    ) -> Result<Self, Error> {
        let mut places = vec![Vec::new(); layout.spans().len()];
        for (number, bucket) in plan.iter().enumerate() {
            for (slice, Slice { span, .. }) in bucket.slices.iter().enumerate() {
                places[span.0].push((number, slice));
            }
        }
        let states = plan.into_iter().map(|bucket| BucketState::new(bucket, group, assignment));
        Ok(Buckets { states: states.collect::<Result<_, _>>()?, places })
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

    /// This rank has other shards from the next step on. Nothing changes if it fails.
    ///
    /// # Errors
    ///
    /// Memory cannot be had.
    pub(super) fn move_shards(&mut self, group: &Group, assignment: &Assignment) -> Result<(), Error> {
        let sum = |state: &BucketState| ShardSum::new(group, state.bucket.len, assignment.shards.clone());
        let sums = self.states.iter().map(sum).collect::<Result<Vec<_>, _>>()?;
        self.states.iter_mut().zip(sums).for_each(|(state, sum)| state.sum = sum);
        Ok(())
    }

    /// A shard's pass begins, in which each span owes so many contributions.
    pub(super) fn begin_shard(&mut self, expected: &[u32]) {
        for state in &mut self.states {
            state.owed = state.bucket.slices.iter().map(|slice| expected[slice.span.0]).sum();
        }
    }

    /// A shard's pass is over: those that are still here take what it has given.
    pub(super) fn end_shard(&mut self, uses: &[u32], shard: usize) {
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
