//! Profile of one worker's step.

use serde::{Deserialize, Serialize};

/// Part of the gradient that is reduced at once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// Size in bytes.
    pub bytes: f64,
    /// Bytes on the wire for one shard's part of it.
    pub wire_bytes: f64,
    /// Seconds from the beginning of the backward pass until the whole bucket is computed.
    pub ready: f64,
    /// Seconds from the beginning of the forward pass until its parameters are used.
    pub needed: f64,
}

/// Measurements of a bucket by a worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredBucket {
    /// Size in bytes.
    pub bytes: f64,
    /// Bytes on the wire for one shard's part of it.
    pub wire_bytes: f64,
    /// Seconds from the beginning of the last backward pass until the whole bucket was computed.
    pub ready: f64,
    /// Seconds of computation from the end of a step until the next one needed its values; `None` if unknown.
    pub needed: Option<f64>,
}

/// Step of one worker without any communication.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepProfile {
    /// Seconds of the forward pass and what precedes it: loading data, and bookkeeping.
    pub forward: f64,
    /// Seconds of the backward pass.
    pub backward: f64,
    /// Seconds in which the optimizer updates all parameters.
    pub optimizer: f64,
    /// Buckets, in the order in which the backward pass fills them.
    pub buckets: Vec<Bucket>,
}

impl StepProfile {
    /// Returns a profile from the totals of a step. Buckets of at most `cap` bytes share `bytes` of
    /// gradients. They become ready at even intervals in the backward pass and are needed in reverse order.
    pub fn even(forward: f64, backward: f64, optimizer: f64, bytes: f64, cap: f64) -> Self {
        let count = (bytes / cap).ceil().max(1.0) as usize;
        let share = |part: usize| part as f64 / count as f64;
        let bucket = |index: usize| Bucket {
            bytes: bytes / count as f64,
            wire_bytes: bytes / count as f64,
            ready: backward * share(index + 1),
            needed: forward * share(count - 1 - index),
        };
        StepProfile { forward, backward, optimizer, buckets: (0..count).map(bucket).collect() }
    }

    /// Returns a profile from measurements. `own` are the seconds of the step without waiting, of which
    /// `backward` and `optimizer` are known. The step has `passes` backward passes, and buckets become ready
    /// in the last one, after the measured seconds from its beginning.
    ///
    /// Where it is unknown when buckets are needed, the forward pass is assumed to mirror the backward pass.
    pub fn measured(
        own: f64,
        backward: f64,
        optimizer: f64,
        passes: usize,
        buckets: &[MeasuredBucket],
    ) -> Self {
        let passes = passes.max(1) as f64;
        let forward = (own - backward - optimizer).max(0.0);
        let last = backward / passes;
        let bucket = |bucket: &MeasuredBucket| {
            let ready = bucket.ready.min(last);
            let share = if last > 0.0 { ready / last } else { 1.0 };
            let mirrored = forward / passes * (1.0 - share);
            let needed = bucket.needed.map_or(mirrored, |needed| needed.min(forward));
            let MeasuredBucket { bytes, wire_bytes, .. } = *bucket;
            // All passes but the last backward pass come before.
            Bucket { bytes, wire_bytes, ready: backward - last + ready, needed }
        };
        StepProfile { forward, backward, optimizer, buckets: buckets.iter().map(bucket).collect() }
    }

    /// Returns a step with `passes` times as many shards, one after another. Only the last backward pass
    /// makes buckets ready, and only the first forward pass waits for them.
    pub fn accumulating(&self, passes: usize) -> Self {
        let before = (passes.max(1) - 1) as f64 * (self.forward + self.backward);
        let later = |bucket: &Bucket| Bucket { ready: bucket.ready + before, ..*bucket };
        let buckets = self.buckets.iter().map(later).collect();
        StepProfile { backward: self.backward + before, buckets, ..self.clone() }
    }

    /// Returns the step of a worker whose computation takes `times` as long.
    pub fn slowed(&self, times: f64) -> Self {
        let slowed = |bucket: &Bucket| Bucket {
            ready: bucket.ready * times,
            needed: bucket.needed * times,
            ..*bucket
        };
        StepProfile {
            forward: self.forward * times,
            backward: self.backward * times,
            optimizer: self.optimizer * times,
            buckets: self.buckets.iter().map(slowed).collect(),
        }
    }

    /// Returns the step prolonged by `seconds`, evenly over its parts.
    pub fn longer_by(&self, seconds: f64) -> Self {
        let alone = self.alone();
        if alone > 0.0 { self.slowed(1.0 + seconds / alone) } else { self.clone() }
    }

    /// Returns a step whose reduction sends this many bytes per element of a shard's gradient, computing as
    /// long as before.
    pub fn sending(&self, bytes_per_element: f64) -> Self {
        let sent = |bucket: &Bucket| Bucket { wire_bytes: bytes_per_element * bucket.bytes / 4.0, ..*bucket };
        StepProfile { buckets: self.buckets.iter().map(sent).collect(), ..self.clone() }
    }

    /// Returns the bytes on the wire for one shard's gradient.
    pub fn wire_bytes(&self) -> f64 {
        self.buckets.iter().map(|bucket| bucket.wire_bytes).sum()
    }

    /// Returns the seconds of one worker's step.
    pub fn alone(&self) -> f64 {
        self.forward + self.backward + self.optimizer
    }

    /// Returns the bytes of all gradients.
    pub fn bytes(&self) -> f64 {
        self.buckets.iter().map(|bucket| bucket.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_step_is_a_profile() {
        let bucket = |&(bytes, ready)| MeasuredBucket { bytes, wire_bytes: bytes / 2.0, ready, needed: None };
        let buckets: Vec<MeasuredBucket> = [(4e6, 1.5), (1e6, 3.0), (8.0, 7.0)].iter().map(bucket).collect();
        let profile = StepProfile::measured(10.0, 6.0, 1.0, 2, &buckets);
        assert_eq!(profile.wire_bytes(), 2.5e6 + 4.0);
        assert_eq!((profile.forward, profile.alone(), profile.bytes()), (3.0, 10.0, 5e6 + 8.0));
        // The last of two passes begins after 3 s; measurements past its end count as its end.
        let ready: Vec<f64> = profile.buckets.iter().map(|bucket| bucket.ready).collect();
        assert_eq!(ready, [4.5, 6.0, 6.0]);
        let needed: Vec<f64> = profile.buckets.iter().map(|bucket| bucket.needed).collect();
        // The first of two forward passes is the one that waits.
        assert_eq!(needed, [0.75, 0.0, 0.0]);
        let known = MeasuredBucket { needed: Some(2.5), ..buckets[0] };
        let known =
            StepProfile::measured(10.0, 6.0, 1.0, 2, &[known, MeasuredBucket { needed: Some(9.0), ..known }]);
        assert_eq!((known.buckets[0].needed, known.buckets[1].needed), (2.5, 3.0));
        let nothing = StepProfile::measured(1.0, 0.0, 0.0, 1, &[MeasuredBucket { ready: 0.0, ..buckets[0] }]);
        assert_eq!((nothing.forward, nothing.buckets[0].needed), (1.0, 0.0));
    }

    #[test]
    fn passes_that_accumulate_make_buckets_ready_in_the_last_one() {
        let once = StepProfile::even(1.0, 2.0, 0.5, 4.0, 1.0);
        let thrice = once.accumulating(3);
        assert_eq!((thrice.alone(), thrice.buckets[0].ready), (9.5, once.buckets[0].ready + 6.0));
        assert_eq!(once.accumulating(1), once);
        let slow = once.slowed(2.0);
        assert_eq!((slow.alone(), slow.buckets[3].ready, slow.buckets[0].needed), (7.0, 4.0, 1.5));
    }
}
