//! Synchronization primitives of the ranks. Their twin for loom is `loom/src/sync.rs`.

pub(super) use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

use rustix::thread::futex;

pub(super) const SLOTS: usize = kolo_schedule::MAX_UNTAKEN;

/// Sleeps while the word is `seen`, at most until `limit`, which is less than a second.
pub(super) fn sleep(word: &AtomicU32, seen: u32, limit: Duration) {
    let limit = rustix::time::Timespec { tv_sec: 0, tv_nsec: i64::from(limit.subsec_nanos()) };
    // Woken, rung meanwhile, interrupted or timed out: in all cases the caller looks again.
    let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&limit));
}

pub(super) fn wake(word: &AtomicU32) {
    // A failed wake-up is one that nobody needed.
    let _ = futex::wake(word, futex::Flags::empty(), 1);
}

/// Orders a write with [`Ordering::SeqCst`] before the reads behind it, which it does by itself.
pub(super) fn fence_after_write() {}
