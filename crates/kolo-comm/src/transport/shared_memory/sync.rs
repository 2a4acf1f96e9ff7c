//! What ranks synchronise by. Its twin for loom is `loom/src/sync.rs`.

pub(super) use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

use rustix::thread::futex;

/// Messages that a lane holds.
pub(super) const SLOTS: usize = kolo_schedule::MAX_UNTAKEN;

/// Sleeps while the word is `seen`, less than a second and at most so long.
pub(super) fn sleep(word: &AtomicU32, seen: u32, limit: Duration) {
    let limit = rustix::time::Timespec { tv_sec: 0, tv_nsec: i64::from(limit.subsec_nanos()) };
    // Woken, rung meanwhile, interrupted or timed out: all lead to another look.
    let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&limit));
}

/// Wakes who sleeps on the word.
pub(super) fn wake(word: &AtomicU32) {
    // A failed wake-up is one that nobody needed.
    let _ = futex::wake(word, futex::Flags::empty(), 1);
}

/// Orders a write with [`Ordering::SeqCst`] before the reads behind it, which it does by itself.
pub(super) fn fence_after_write() {}
