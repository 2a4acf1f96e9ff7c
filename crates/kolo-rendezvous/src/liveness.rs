//! Who is still there. One place per group where a failure is latched and from which every wait is woken.
//!
//! The first failure wins: whatever goes wrong afterwards is a consequence, and every later call of the group
//! reports the first one again.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Error;
use kolo_schedule::Rank;

/// Wakes one sleeping wait; false if whoever might sleep there is gone for good.
pub type Waker = Box<dyn Fn() -> bool + Send + Sync>;

/// Shared by a group's waits and by whoever watches its peers.
pub struct Liveness {
    failed: AtomicBool,
    failure: Mutex<Option<Error>>,
    left: Vec<AtomicBool>,
    /// Whom each rank of this process waits for, plus one; 0 when it does not wait.
    waiting: Vec<AtomicUsize>,
    /// For how long each rank of this process has waited for each other, in nanoseconds.
    waited: Vec<OnceLock<Box<[AtomicU64]>>>,
    wakers: Mutex<Vec<Waker>>,
}

impl Liveness {
    pub fn new(world: usize) -> Self {
        Liveness {
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            left: (0..world).map(|_| AtomicBool::new(false)).collect(),
            waiting: (0..world).map(|_| AtomicUsize::new(0)).collect(),
            waited: (0..world).map(|_| OnceLock::new()).collect(),
            wakers: Mutex::new(Vec::new()),
        }
    }

    /// Registers what wakes one sleeping wait.
    pub fn on_event(&self, waker: Waker) {
        lock(&self.wakers).push(waker);
    }

    /// Latches a failure and wakes every wait. Returns the failure that stands: the first one.
    pub fn fail(&self, error: Error) -> Error {
        let first = lock(&self.failure).get_or_insert(error).clone();
        self.failed.store(true, Ordering::SeqCst);
        self.wake();
        first
    }

    /// Notes that a rank has left in good order.
    pub fn leave(&self, rank: Rank) {
        if let Some(left) = self.left.get(rank.0) {
            left.store(true, Ordering::SeqCst);
        }
        self.wake();
    }

    pub fn has_left(&self, rank: Rank) -> bool {
        self.left.get(rank.0).is_some_and(|left| left.load(Ordering::SeqCst))
    }

    pub fn failure(&self) -> Option<Error> {
        if self.failed.load(Ordering::SeqCst) { lock(&self.failure).clone() } else { None }
    }

    /// Why a connection broke: what is known, or soon will be by another way; else `error` itself.
    pub fn reason(&self, error: Error) -> Error {
        let until = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until && self.failure().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.failure().unwrap_or(error)
    }

    /// Whom `rank` waits for at this moment, if it is a rank of this process.
    pub fn waiting_for(&self, rank: Rank) -> Option<Rank> {
        self.waiting[rank.0].load(Ordering::SeqCst).checked_sub(1).map(Rank)
    }

    /// Notes that a rank of this process waits for another, until the note is dropped. Both are ranks of the job.
    pub fn note(&self, here: Rank, peer: Rank, deadline: Instant) -> Waiting<'_> {
        let note = &self.waiting[here.0];
        note.store(peer.0 + 1, Ordering::SeqCst);
        Waiting { note, deadline, began: Instant::now(), waited: &self.waits_of(here)[peer.0] }
    }

    /// For how long `here`, a rank of this process, has slept until `peer` sent or took something; both of the job.
    pub fn waited(&self, here: Rank, peer: Rank) -> Duration {
        Duration::from_nanos(self.waits_of(here)[peer.0].load(Ordering::Relaxed))
    }

    /// Made when they are first needed: of most ranks another process takes note.
    fn waits_of(&self, here: Rank) -> &[AtomicU64] {
        self.waited[here.0].get_or_init(|| (0..self.waited.len()).map(|_| AtomicU64::new(0)).collect())
    }

    fn wake(&self) {
        lock(&self.wakers).retain(|wake| wake());
    }
}

/// Who holds everybody up: whoever waits only passes the blame on. `waiting` says whom a rank waits for, as far
/// as is known; a rank that does not answer is not waiting in good order.
pub fn culprit(blamed: Rank, world: usize, waiting: impl Fn(Rank) -> Option<Rank>) -> Rank {
    let mut culprit = blamed;
    // A chain longer than the group is a circle; then no rank is more to blame than another.
    for _ in 0..world {
        match waiting(culprit) {
            Some(next) => culprit = next,
            None => return culprit,
        }
    }
    blamed
}

/// A lock that is never poisoned in earnest: what it guards is replaced whole or not at all.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See [`Liveness::note`].
pub struct Waiting<'a> {
    note: &'a AtomicUsize,
    deadline: Instant,
    began: Instant,
    waited: &'a AtomicU64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let nanos = now.saturating_duration_since(self.began).as_nanos();
        self.waited.fetch_add(u64::try_from(nanos).unwrap_or(u64::MAX), Ordering::Relaxed);
        // A wait that ran out of time is evidence against the one waited for: it stays.
        if now < self.deadline {
            self.note.store(0, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blame_follows_the_chain_of_waits() {
        let waits = [Some(1), Some(2), None, Some(4), Some(3)];
        let culprit = |blamed| culprit(Rank(blamed), waits.len(), |rank| waits[rank.0].map(Rank)).0;
        assert_eq!([0, 1, 2].map(culprit), [2, 2, 2]);
        assert_eq!(culprit(3), 3, "a circle leaves the blame where it was");
    }
}
