//! A bucket of a step: the contributions to it, and the state of its reduction.

use std::time::Instant;

use kolo_comm::{Group, Readers};
use kolo_trace::What;

use super::finiteness;
use super::owned_bucket::OwnedBucket;
use super::parts::Times;
use super::rollback::Rollback;
use super::use_counts::UseCounts;
use crate::wait_time::timed_as;
use kolo_reduction::Error;
use kolo_reduction::reduction::{FinishedShard, ReadyStep, Reduction};
use kolo_reduction::{Bucket, Slice};
use kolo_sampler::Assignment;

/// Durations of one bucket's reduction.
#[derive(Clone, Copy, Debug)]
pub struct BucketTiming {
    /// Bytes of gradient.
    pub bytes: usize,
    /// Bytes on the wire for one shard's part of it, if the reduction compresses; else the same.
    pub wire_bytes: usize,
    /// From its first message until its reduction was over.
    pub seconds: f64,
    /// Seconds from the start of this rank's last backward pass until the bucket was complete; 0 if it got
    /// no gradient in that pass.
    pub ready: f64,
    /// Seconds of this rank's thread from the end of a step until the next one needed the bucket's values,
    /// without waiting and updates; 0 if they are updated at the end of the step.
    pub needed: f64,
    /// Seconds for which this rank's thread waited for it.
    pub exposed: f64,
}

/// Stage of a bucket in the current step.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Stage {
    /// It takes gradients; `owed` contributions of the current shard are still missing.
    Collecting { owed: u32 },
    /// Its reduction has been started.
    Reducing,
    /// Its reduction has been waited for.
    Reduced,
    /// Its result has changed the values.
    Current,
}

/// One bucket in the current step.
pub(super) struct BucketState {
    pub(super) bucket: Bucket,
    /// Its division among owners; `None` if each rank steps all of it.
    owned: Option<OwnedBucket>,
    pub(super) reduction: Box<dyn Reduction>,
    rollback: Rollback,
    pub(super) stage: Stage,
    /// Failure of its reduction, or of the exchange of its values, until somebody waits for it.
    pub(super) failure: Option<Error>,
    /// Timing of its last completed reduction.
    pub(super) timing: BucketTiming,
    /// Its number, and for the timeline the step in which it was launched last.
    number: usize,
    launched_in: u64,
}

impl BucketState {
    pub(super) fn new(
        number: usize,
        bucket: Bucket,
        owned: Option<OwnedBucket>,
        reduction: Box<dyn Reduction>,
    ) -> Self {
        let bytes = bucket.len * size_of::<f32>();
        let wire_bytes = reduction.wire_bytes().unwrap_or(bytes);
        let timing = BucketTiming { bytes, wire_bytes, seconds: 0.0, ready: 0.0, needed: 0.0, exposed: 0.0 };
        let rollback = Rollback::default();
        BucketState {
            bucket,
            owned,
            reduction,
            rollback,
            stage: Stage::Collecting { owed: 0 },
            failure: None,
            timing,
            number,
            launched_in: 0,
        }
    }

    /// Adds a contribution to one of its slices, part by part, with a call of `look` just before each.
    /// `first` is true for the first contribution to that slice in this shard.
    pub(super) fn add(&mut self, slice: usize, gradient: &[f32], first: bool, mut look: impl FnMut(&[f32])) {
        let Slice { offset, elements, .. } = &self.bucket.slices[slice];
        let gradient = &gradient[elements.clone()];
        for run in finiteness::runs(gradient.len()) {
            look(&gradient[run.clone()]);
            self.reduction.add(offset + run.start, &gradient[run], first);
        }
        if let Stage::Collecting { owed } = &mut self.stage {
            *owed -= 1;
        }
    }

    /// Returns true if its reduction has been started in this step.
    pub(super) fn is_launched(&self) -> bool {
        !matches!(self.stage, Stage::Collecting { .. })
    }

    /// Returns true if no contribution of the current shard is missing.
    pub(super) fn is_complete(&self) -> bool {
        !matches!(self.stage, Stage::Collecting { owed: 1.. })
    }

    /// Adds zeros for spans without a gradient, then adds the shard to the earlier ones.
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

    pub(super) fn launched(&mut self) {
        self.stage = Stage::Reducing;
        self.launched_in = kolo_trace::current_step();
    }

    /// Returns true if nothing is sent in the current step ([`Reduction::is_deferred`]).
    pub(super) fn is_deferred(&self) -> bool {
        self.reduction.is_deferred()
    }

    /// Returns true if its reduction is over.
    pub(super) fn is_back(&mut self) -> bool {
        self.reduction.is_over()
    }

    /// Waits until the reduction is over. Errors: it failed (naming the rank), now or before.
    pub(super) fn wait(&mut self, times: &mut Times) -> Result<(), Error> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if self.stage != Stage::Reducing {
            return self.reduction.wait().map(drop);
        }
        let (bucket, before) = (self.in_timeline(), times.exposed);
        let ran = timed_as(&mut times.exposed, || What::WaitBucket(bucket), || self.reduction.wait())?;
        self.stage = Stage::Reduced;
        self.timing.exposed = (times.exposed - before).as_secs_f64();
        if let Some(ran) = ran {
            times.wire.add(ran);
            self.timing.seconds = (ran.ended - ran.started).as_secs_f64();
            self.timing.wire_bytes = self.reduction.wire_bytes().unwrap_or(self.timing.bytes);
            kolo_trace::span_of(self.launched_in, ran.started, ran.ended, || {
                What::Reduce(self.in_timeline())
            });
        }
        Ok(())
    }

    /// Waits before the result is needed; a failure is returned by the next wait.
    pub(super) fn wait_and_keep_failure(&mut self, times: &mut Times) {
        self.failure = self.wait(times).err();
    }

    /// Description of the bucket for the timeline.
    pub(super) fn in_timeline(&self) -> kolo_trace::Bucket {
        let BucketTiming { bytes, wire_bytes, .. } = self.timing;
        kolo_trace::Bucket { number: self.number, bytes, wire_bytes }
    }

    /// Marks its gradient as complete, `ready` seconds after the start of the pass.
    pub(super) fn complete(&mut self, ready: f64) {
        self.timing.ready = ready;
        kolo_trace::mark(|| What::Ready(self.in_timeline()));
    }

    /// Records that its values were updated from `start` to `end`; the next step needed them after `needed`
    /// seconds.
    pub(super) fn updated(&mut self, start: Instant, end: Instant, needed: f64) {
        self.timing.needed = needed;
        kolo_trace::span_of(self.launched_in, start, end, || What::Update(self.in_timeline()));
    }

    pub(super) fn result(&mut self) -> (&Bucket, &mut [f32]) {
        (&self.bucket, self.reduction.result())
    }

    /// The slices that this rank steps, and the reduction.
    pub(super) fn own(&mut self) -> (&[Slice], &mut dyn Reduction) {
        let own = self.owned.as_ref().map_or(&self.bucket.slices[..], OwnedBucket::own);
        (own, &mut *self.reduction)
    }

    /// The slices that this rank looks at for all ranks, and their gradient: all of them, where each rank has
    /// the whole gradient.
    pub(super) fn seen(&mut self) -> (&[Slice], &mut [f32]) {
        let seen = self.owned.as_ref().and_then(OwnedBucket::seen).unwrap_or(&self.bucket.slices);
        (seen, self.reduction.result())
    }

    /// The division among owners, and the reduction.
    pub(super) fn owned(&mut self) -> (Option<&mut OwnedBucket>, &mut dyn Reduction) {
        (self.owned.as_mut(), &mut *self.reduction)
    }

    /// Ranks that step its elements.
    pub(super) fn readers(&self) -> Readers {
        self.owned.as_ref().map_or(Readers::All, |owned| owned.readers().clone())
    }

    /// The bucket and its reduction, for a caller that reads the result once.
    pub(super) fn reduced(&mut self) -> (&Bucket, &mut dyn Reduction) {
        (&self.bucket, &mut *self.reduction)
    }

    /// Saves the reduction's state, before a step that may be skipped.
    pub(super) fn save_state(&mut self) {
        self.rollback.save(&mut *self.reduction);
    }

    /// Restores the reduction's state from before the step; the reduction is over.
    pub(super) fn restore_state(&mut self) {
        self.rollback.restore(&mut *self.reduction);
    }

    pub(super) fn reset(&mut self) {
        self.stage = Stage::Collecting { owed: 0 };
        self.failure = None;
        if let Some(owned) = &mut self.owned {
            owned.reset();
        }
        self.reduction.reset();
    }
}
