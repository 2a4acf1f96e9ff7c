//! How many samples a step has, for what has to know it before the step is over.

use std::sync::{Arc, OnceLock};

/// Samples of all shards of all ranks in one step, or whatever the loss counts.
///
/// Their sum is the first collective of a step, so it is known to all that is started on the communication
/// thread afterwards ([`Group::start_stages`](kolo_comm::Group::start_stages)).
#[derive(Clone, Debug, Default)]
pub struct SampleCount(Arc<OnceLock<f64>>);

impl SampleCount {
    /// The number; `None` while it is not known, or where its sum has failed.
    pub fn get(&self) -> Option<f64> {
        self.0.get().copied()
    }

    /// It is known from now on, and stays what it is.
    pub(crate) fn set(&self, count: f64) {
        let _ = self.0.set(count);
    }
}
