//! Time in which a thread waits.

use std::time::{Duration, Instant};

/// Runs `work` and adds its time to `total`.
pub(crate) fn timed<R>(total: &mut Duration, work: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = work();
    *total += start.elapsed();
    result
}
