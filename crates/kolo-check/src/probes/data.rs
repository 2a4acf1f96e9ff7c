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
}
