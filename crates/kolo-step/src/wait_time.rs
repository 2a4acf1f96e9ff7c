//! Time in which the training thread waits for other ranks.

use std::time::{Duration, Instant};

use kolo_trace::What;

/// Runs `work`, which waits for `thing`, and adds its time to `total`.
pub fn timed<R>(total: &mut Duration, thing: &str, work: impl FnOnce() -> R) -> R {
    timed_as(total, || What::Wait { thing: thing.into() }, work)
}

/// Runs `work` as [`timed`] does, with a description of its own for the timeline.
pub(crate) fn timed_as<R>(total: &mut Duration, what: impl FnOnce() -> What, work: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = work();
    let end = Instant::now();
    *total += end - start;
    kolo_trace::span(start, end, what);
    result
}
