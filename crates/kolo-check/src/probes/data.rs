//! What a rank has read of the data.

use serde::{Deserialize, Serialize};

/// Data that a rank has read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataFacts {
    /// Samples to train on.
    pub samples: usize,
    /// Samples to test on.
    pub test_samples: usize,
    /// A hash of all of them, where the data set has one.
    pub fingerprint: Option<String>,
}
