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

    /// Seconds of the step of one worker alone.
    pub fn alone(&self) -> f64 {
        self.forward + self.backward + self.optimizer
    }

    /// Bytes of all gradients.
    pub fn bytes(&self) -> f64 {
        self.buckets.iter().map(|bucket| bucket.bytes).sum()
    }
}
