//! Primitives by which ranks synchronize, as loom explores it; the twin of kolo-transport's `sync.rs`.

use std::time::Duration;

pub(super) use loom::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Condvar, Mutex};

/// Messages that a lane holds: few, so that one that is full is among what is explored.
pub(super) const SLOTS: usize = 2;

loom::lazy_static! {
    static ref QUEUE: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
}

/// Sleeps while the word is `seen`. Without a limit: a wake-up that gets lost is a deadlock.
pub(super) fn sleep(word: &AtomicU32, seen: u32, _limit: Duration) {
    // As the kernel does: it looks at the word and begins to sleep under a lock that a wake-up needs, too.
    let awake = QUEUE.0.lock().expect("no thread panics with it");
    if word.load(Ordering::SeqCst) == seen {
        drop(QUEUE.1.wait(awake));
    }
}

pub(super) fn wake(_word: &AtomicU32) {
    let _awake = QUEUE.0.lock().expect("no thread panics with it");
    QUEUE.1.notify_all();
}

/// Orders a write with [`Ordering::SeqCst`] before the reads behind it: loom takes such a write for one with
/// acquire and release only.
pub(super) fn fence_after_write() {
    fence(Ordering::SeqCst);
}
