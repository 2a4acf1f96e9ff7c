//! The profile of the first steps, from which later ones learn: in which order gradients become ready, when,
//! and how fast they are transferred.

use std::time::Instant;

use super::bucket_state::BucketTiming;
use super::launch_order::{Expected, LaunchSlot, by_need};
use kolo_optim::SpanId;
use kolo_reduction::Bucket;

/// Steps whose times are measured, after the first one, which shows the order. There are several, because
/// any one may be disturbed.
const MEASURED: usize = 5;

/// Factor between the measured and the expected time of a bucket. A bucket that is ready sooner waits for
/// the one before it; one that is not ready at its turn leaves the network idle while others wait.
const SLACK: f64 = 1.1;

/// Observations of the first steps so far.
pub(super) struct Profile {
    steps: usize,
    /// The order in which spans became complete in the first step.
    order: Vec<SpanId>,
    /// Start of the last backward pass of the current step.
    began: Instant,
    /// Seconds, in this step, from there until each bucket was complete and, as the last one, until the pass
    /// was over.
    now: Vec<f64>,
    /// Seconds, in this step, from there until each span was complete; 0 for those that were not.
    spans: Vec<f64>,
    /// For each measured step the seconds of each span and, as the last one, those until the pass was over.
    ready: Vec<Vec<f64>>,
    /// Bytes a second, in the best step.
    rate: f64,
    /// The agreed times of all ranks ([`Lesson::Times`]).
    agreed: Option<Vec<f64>>,
}

/// Result of a profiled step.
pub(super) enum Lesson {
    /// The order in which spans become ready.
    Order(Vec<SpanId>),
    /// Expected times of each span and of the end of the pass, and seconds for each byte on the wire. The
    /// slowest rank's apply.
    Times(Vec<f64>),
    /// No result yet.
    Wait,
}

impl Profile {
    /// Starts a profile of `spans` spans.
    pub(super) fn new(spans: usize) -> Self {
        Profile {
            steps: 0,
            order: Vec::new(),
            began: Instant::now(),
            now: Vec::new(),
            spans: vec![0.0; spans],
            ready: Vec::new(),
            rate: 0.0,
            agreed: None,
        }
    }

    /// Measures times anew from the next step on, if an order is known; until then the old ones apply.
    pub(super) fn again(&mut self) {
        self.steps = self.steps.min(1);
        self.ready.clear();
        self.rate = 0.0;
    }

    pub(super) fn is_over(&self) -> bool {
        self.steps > MEASURED
    }

    /// Starts the clock at the beginning of the last backward pass.
    pub(super) fn begin(&mut self, buckets: usize) {
        self.began = Instant::now();
        self.now.clear();
        self.now.resize(buckets + 1, 0.0);
        self.spans.fill(0.0);
    }

    /// Seconds from the start of the last backward pass of this step until each bucket was complete, once
    /// the pass is over.
    pub(super) fn ready(&self) -> &[f64] {
        &self.now[..self.now.len().saturating_sub(1)]
    }

    /// Clears these times: this rank may see no backward pass in the next step, and then has none.
    pub(super) fn forget_ready(&mut self) {
        self.now.clear();
    }

    pub(super) fn span_complete(&mut self, id: SpanId) {
        if self.steps == 0 {
            self.order.push(id);
        }
        self.spans[id.0] = self.began.elapsed().as_secs_f64();
    }

    /// Records that a bucket is complete; returns the seconds since the start of the pass.
    pub(super) fn bucket_complete(&mut self, bucket: usize) -> f64 {
        self.note(bucket);
        self.now.get(bucket).copied().unwrap_or_default()
    }

    pub(super) fn pass_over(&mut self) {
        self.note(self.now.len().saturating_sub(1));
        if let Some(pass) = self.now.last().filter(|_| self.steps > 0 && self.steps <= MEASURED) {
            self.ready.push(self.spans.iter().copied().chain([*pass]).collect());
        }
    }

    fn note(&mut self, index: usize) {
        if let Some(time) = self.now.get_mut(index) {
            *time = self.began.elapsed().as_secs_f64();
        }
    }

    /// Ends a step with these timings of its reductions.
    pub(super) fn end_step(&mut self, buckets: &[BucketTiming]) -> Lesson {
        if self.is_over() {
            return Lesson::Wait;
        }
        self.steps += 1;
        if self.steps == 1 {
            return Lesson::Order(std::mem::take(&mut self.order));
        }
        // Rate of all buckets together: a single short one may be all latency, or pass through a link that
        // permits bursts.
        let (bytes, seconds) = buckets
            .iter()
            .fold((0, 0.0), |(bytes, seconds), timing| (bytes + timing.bytes, seconds + timing.seconds));
        self.rate = self.rate.max(bytes as f64 / f64::max(seconds, 1e-9));
        if !self.is_over() {
            return Lesson::Wait;
        }
        // A rank without shards has seen no backward pass.
        let mut times = vec![0.0; self.spans.len() + 1];
        for (index, time) in times.iter_mut().enumerate() {
            let mut seen: Vec<f64> = self.ready.iter().map(|step| step[index]).collect();
            seen.sort_by(f64::total_cmp);
            *time = SLACK * seen.get(seen.len() / 2).copied().unwrap_or_default();
        }
        times.push(1.0 / self.rate.max(f64::MIN_POSITIVE));
        Lesson::Times(times)
    }

    /// Sets the times of [`Lesson::Times`] that all ranks use from now on.
    pub(super) fn agree(&mut self, times: Vec<f64>) {
        self.agreed = Some(times);
    }

    /// Returns the order in which buckets are sent, by the agreed times; `None` before the ranks have agreed
    /// on times.
    pub(super) fn launch_order<'a>(
        &self,
        buckets: impl Iterator<Item = &'a Bucket>,
    ) -> Option<Vec<LaunchSlot>> {
        let [spans @ .., pass, seconds_a_byte] = &self.agreed.as_ref()?[..] else { return None };
        let expected = |bucket: &Bucket| {
            let ready = bucket.slices.iter().map(|slice| spans[slice.span.0]).fold(0.0, f64::max);
            Expected {
                // A bucket without a gradient is complete when the pass is over.
                ready: if ready > 0.0 { ready } else { *pass },
                travel: (bucket.len * size_of::<f32>()) as f64 * seconds_a_byte,
            }
        };
        let expected: Vec<Expected> = buckets.map(expected).collect();
        let slots = by_need(&expected, *pass);
        log::debug!("{seconds_a_byte:.3e} s a byte, backward pass {pass:.3} s: {slots:?} for {expected:?}");
        Some(slots)
    }
}
