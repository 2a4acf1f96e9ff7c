//! Number of samples of a step, for code that needs it before the step is over.

use std::sync::{Arc, OnceLock};

/// Samples of all shards of all ranks in one step, or the items that the loss counts.
///
/// Their sum is the first collective of a step, so all later work on the communication thread knows it
/// ([`Group::start_stages`](kolo_comm::Group::start_stages)).
#[derive(Clone, Debug, Default)]
pub struct SampleCount(Arc<OnceLock<f64>>);

impl SampleCount {
    /// The number; `None` while it is not known, or if its sum has failed.
    pub fn get(&self) -> Option<f64> {
        self.0.get().copied()
    }

    /// Sets the number, which never changes afterwards.
    pub fn set(&self, count: f64) {
        let _ = self.0.set(count);
    }
}
