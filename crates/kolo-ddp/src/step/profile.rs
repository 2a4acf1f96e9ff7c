//! The profile of the first steps, from which later ones learn: in which order gradients become ready, when,
//! and how fast they travel.

use std::time::Instant;

use super::bucket_state::BucketTiming;
use super::launch_order::{Expected, LaunchSlot, by_need};
use kolo_optim::SpanId;

/// Steps whose times are measured, after the first one, which shows the order. Several, because any one may
/// be disturbed.
const MEASURED: usize = 5;

/// How much later than measured a bucket is expected. One that is ready sooner waits for the one before it;
/// one that is not ready at its turn leaves the wire idle while others wait.
const SLACK: f64 = 1.1;

/// What has been seen so far of the first steps.
pub(super) struct Profile {
    steps: usize,
    /// The order in which spans became complete in the first step.
    order: Vec<SpanId>,
    /// When the last backward pass of the running step began.
    began: Instant,
    /// In this step the seconds from there until each bucket was complete and, as the last one, until the
    /// pass was over.
    now: Vec<f64>,
    /// The same for each measured step.
    ready: Vec<Vec<f64>>,
    /// Bytes a second, in the best step.
    rate: f64,
}

/// What a profiled step has taught.
pub(super) enum Lesson {
    /// The order in which spans become ready.
    Order(Vec<SpanId>),
    /// When the buckets and the end of the pass are to be expected. The slowest rank's times are what counts.
    Times(Vec<f64>),
    /// Nothing to act on yet.
    Wait,
}

impl Profile {
    /// Nothing has been seen.
    pub(super) fn new() -> Self {
        Profile {
            steps: 0,
            order: Vec::new(),
            began: Instant::now(),
            now: Vec::new(),
            ready: Vec::new(),
            rate: 0.0,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.steps > MEASURED
    }

    /// The backward pass begins of which all that follows is told.
    pub(super) fn begin(&mut self, buckets: usize) {
        self.began = Instant::now();
        self.now.clear();
        self.now.resize(buckets + 1, 0.0);
    }

    /// For each bucket of this step, once its pass is over, the seconds from the start of the last backward
    /// pass until it was complete.
    pub(super) fn ready(&self) -> &[f64] {
        &self.now[..self.now.len().saturating_sub(1)]
    }

    /// This rank may see no backward pass in the next step, and then has no times.
    pub(super) fn forget_ready(&mut self) {
        self.now.clear();
    }

    pub(super) fn span_complete(&mut self, id: SpanId) {
        if self.steps == 0 {
            self.order.push(id);
        }
    }

    /// A bucket is complete, so many seconds after the start of the pass.
    pub(super) fn bucket_complete(&mut self, bucket: usize) -> f64 {
        self.note(bucket);
        self.now.get(bucket).copied().unwrap_or_default()
    }

    pub(super) fn pass_over(&mut self) {
        self.note(self.now.len().saturating_sub(1));
        if self.steps > 0 && !self.is_over() && !self.now.is_empty() {
            self.ready.push(self.now.clone());
        }
    }

    fn note(&mut self, index: usize) {
        if let Some(time) = self.now.get_mut(index) {
            *time = self.began.elapsed().as_secs_f64();
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
        // Of all buckets together: a single short one may be all latency, or slip through a link that lets
        // bursts pass.
        let (bytes, seconds) = buckets
            .iter()
            .fold((0, 0.0), |(bytes, seconds), timing| (bytes + timing.bytes, seconds + timing.seconds));
        self.rate = self.rate.max(bytes as f64 / f64::max(seconds, 1e-9));
        if !self.is_over() {
            return Lesson::Wait;
        }
        // A rank without shards has seen no backward pass.
        let mut times = vec![0.0; buckets.len() + 1];
        for (index, time) in times.iter_mut().enumerate() {
            let mut seen: Vec<f64> = self.ready.iter().map(|step| step[index]).collect();
            seen.sort_by(f64::total_cmp);
            *time = SLACK * seen.get(seen.len() / 2).copied().unwrap_or_default();
        }
        Lesson::Times(times)
    }

    /// The order in which buckets go onto the wire, with the times of [`Lesson::Times`].
    pub(super) fn launch_order(&self, times: &[f64], buckets: &[BucketTiming]) -> Vec<LaunchSlot> {
        let pass = times[buckets.len()];
        let expected = |(timing, &ready): (&BucketTiming, &f64)| Expected {
            // What gets no gradient is complete when the pass is over.
            ready: if ready > 0.0 { ready } else { pass },
            travel: timing.bytes as f64 / self.rate,
        };
        let expected: Vec<Expected> = buckets.iter().zip(times).map(expected).collect();
        let slots = by_need(&expected, pass);
        log::debug!("{:.3} GB/s, backward pass {pass:.3} s: {slots:?} for {expected:?}", self.rate / 1e9);
        slots
    }
}
