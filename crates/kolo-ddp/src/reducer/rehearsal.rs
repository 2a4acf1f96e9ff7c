//! The first steps, from which a reducer learns: in which order gradients become ready, when, and how fast they travel.

use std::time::Instant;

use super::BucketTiming;
use super::sequence::{Expected, Turn, by_need};
use crate::layout::SpanId;

/// Steps whose times are measured, after the first one, which shows the order. Several, because any one may be disturbed;
/// what counts is the quickest.
const MEASURED: usize = 3;

/// What has been seen so far.
pub(super) struct Rehearsal {
    steps: usize,
    /// The order in which spans became complete in the first step.
    order: Vec<SpanId>,
    /// When the last backward pass of the running step began.
    began: Instant,
    /// Seconds from there until each bucket was complete, at best, and until the pass was over.
    ready: Vec<f64>,
    pass: f64,
    /// Bytes a second, in the best step.
    rate: f64,
}

/// What a step of the rehearsal has taught.
pub(super) enum Lesson {
    /// The order in which spans become ready.
    Order(Vec<SpanId>),
    /// The order in which buckets go onto the wire.
    Sequence(Vec<Turn>),
    /// Nothing to act on yet.
    Wait,
}

impl Rehearsal {
    pub(super) fn new() -> Self {
        Rehearsal {
            steps: 0,
            order: Vec::new(),
            began: Instant::now(),
            ready: Vec::new(),
            pass: f64::INFINITY,
            rate: 0.0,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.steps > MEASURED
    }

    /// The backward pass begins of which all that follows is told.
    pub(super) fn begin(&mut self, buckets: usize) {
        self.began = Instant::now();
        self.ready.resize(buckets, f64::INFINITY);
    }

    pub(super) fn span_complete(&mut self, id: SpanId) {
        if self.steps == 0 {
            self.order.push(id);
        }
    }

    pub(super) fn bucket_complete(&mut self, bucket: usize) {
        if self.steps > 0 && !self.is_over() {
            self.ready[bucket] = self.ready[bucket].min(self.began.elapsed().as_secs_f64());
        }
    }

    pub(super) fn pass_over(&mut self) {
        if self.steps > 0 && !self.is_over() {
            self.pass = self.pass.min(self.began.elapsed().as_secs_f64());
        }
    }

    /// A step is over, with these reductions.
    pub(super) fn end_step(&mut self, buckets: &[BucketTiming]) -> Lesson {
        if self.is_over() {
            return Lesson::Wait;
        }
        self.steps += 1;
        if self.steps == 1 {
            return Lesson::Order(std::mem::take(&mut self.order));
        }
        // Of all buckets together: a single short one may be all latency, or slip through a link that lets bursts pass.
        let (bytes, seconds) = buckets
            .iter()
            .fold((0, 0.0), |(bytes, seconds), timing| (bytes + timing.bytes, seconds + timing.seconds));
        self.rate = self.rate.max(bytes as f64 / f64::max(seconds, 1e-9));
        if !self.is_over() {
            return Lesson::Wait;
        }
        // A rank without shards has seen no backward pass.
        self.ready.resize(buckets.len(), f64::INFINITY);
        let expected = |(&ready, timing): (&f64, &BucketTiming)| Expected {
            ready: ready.min(self.pass),
            travel: timing.bytes as f64 / self.rate,
        };
        let times: Vec<Expected> = self.ready.iter().zip(buckets).map(expected).collect();
        let turns = by_need(&times, self.pass);
        log::debug!("{:.3} GB/s, backward pass {:.3} s: {turns:?} for {times:?}", self.rate / 1e9, self.pass);
        Lesson::Sequence(turns)
    }
}
