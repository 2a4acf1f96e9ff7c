//! What one worker does in a step by itself.

use serde::{Deserialize, Serialize};

/// A part of the gradient that is reduced at once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// Bytes of it.
    pub bytes: f64,
    /// Seconds from the beginning of the backward pass until all of it is computed.
    pub ready: f64,
    /// Seconds from the beginning of the forward pass until its parameters are used.
    pub needed: f64,
}

/// The step of one worker without any communication.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepProfile {
    /// Seconds of the forward pass, with what comes before it: the data, and bookkeeping.
    pub forward: f64,
    /// Seconds of the backward pass.
    pub backward: f64,
    /// Seconds in which the optimizer updates all parameters.
    pub optimizer: f64,
    /// The buckets, in the order in which the backward pass fills them.
    pub buckets: Vec<Bucket>,
}

impl StepProfile {
    /// A step of which only the whole is known: buckets of at most `cap` bytes share `bytes` of gradients,
    /// are ready one after another in the backward pass at even distances, and needed in the opposite order.
    pub fn even(forward: f64, backward: f64, optimizer: f64, bytes: f64, cap: f64) -> Self {
        let count = (bytes / cap).ceil().max(1.0) as usize;
        let share = |part: usize| part as f64 / count as f64;
        let bucket = |index: usize| Bucket {
            bytes: bytes / count as f64,
            ready: backward * share(index + 1),
            needed: forward * share(count - 1 - index),
        };
        StepProfile { forward, backward, optimizer, buckets: (0..count).map(bucket).collect() }
    }

    /// A step as a worker has measured it: its `own` seconds, without waiting, of which `backward` and
    /// `optimizer` are known; in `passes` backward passes, in the last of which buckets became ready. Each
    /// bucket has its bytes and the seconds from the beginning of that pass until it was ready.
    ///
    /// When a bucket is needed is not measured: the forward pass is taken for the mirror of the backward pass.
    pub fn measured(own: f64, backward: f64, optimizer: f64, passes: usize, buckets: &[(f64, f64)]) -> Self {
        let forward = (own - backward - optimizer).max(0.0);
        let last = backward / passes.max(1) as f64;
        let bucket = |&(bytes, ready): &(f64, f64)| {
            let ready = ready.min(last);
            let share = if last > 0.0 { ready / last } else { 1.0 };
            Bucket { bytes, ready: backward - last + ready, needed: forward * (1.0 - share) }
        };
        StepProfile { forward, backward, optimizer, buckets: buckets.iter().map(bucket).collect() }
    }

    /// Seconds of the step of one worker alone.
    pub fn alone(&self) -> f64 {
        self.forward + self.backward + self.optimizer
    }

    /// Bytes of all gradients.
    pub fn bytes(&self) -> f64 {
        self.buckets.iter().map(|bucket| bucket.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_step_is_a_profile() {
        let profile = StepProfile::measured(10.0, 6.0, 1.0, 2, &[(4e6, 1.5), (1e6, 3.0), (8.0, 7.0)]);
        assert_eq!((profile.forward, profile.alone(), profile.bytes()), (3.0, 10.0, 5e6 + 8.0));
        // The last of two passes begins after 3 s; what is measured after its end became ready at its end.
        let ready: Vec<f64> = profile.buckets.iter().map(|bucket| bucket.ready).collect();
        assert_eq!(ready, [4.5, 6.0, 6.0]);
        let needed: Vec<f64> = profile.buckets.iter().map(|bucket| bucket.needed).collect();
        assert_eq!(needed, [1.5, 0.0, 0.0]);
        let nothing = StepProfile::measured(1.0, 0.0, 0.0, 1, &[(4.0, 0.0)]);
        assert_eq!((nothing.forward, nothing.buckets[0].needed), (1.0, 0.0));
    }
}
