//! Size and fingerprint of the data that a rank has read.

use serde::{Deserialize, Serialize};

/// Data that a rank has read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataFacts {
    /// Samples to train on.
    pub samples: usize,
    /// Samples to test on.
    pub test_samples: usize,
    /// Hash of the samples, if the data set has one.
    pub fingerprint: Option<String>,
    /// Number of samples that the rank has read.
    pub read: SamplesRead,
    /// Warnings of the data set, as a run would give them.
    pub warnings: Vec<String>,
}

/// Number of samples that a rank has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplesRead {
    /// Samples that it has read.
    pub read: usize,
    /// Samples that it was to read: all if each is a file, else some.
    pub of: usize,
}
