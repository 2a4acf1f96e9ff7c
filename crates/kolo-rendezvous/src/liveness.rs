//! Liveness of a group's ranks, and the rank that each waits for.
//!
//! A group has one [`Liveness`], which latches a failure and wakes every wait. The first failure counts:
//! later ones are consequences, and every later call of the group reports the first one again.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::Error;
use kolo_schedule::Rank;

/// Callback that wakes one sleeping wait; returns false if nothing will ever sleep there again.
pub type Waker = Box<dyn Fn() -> bool + Send + Sync>;

/// The state of a group's ranks, shared by its waits and by its failure detector.
pub struct Liveness {
    failed: AtomicBool,
    failure: Mutex<Option<Error>>,
    has_failed: Condvar,
    left: Vec<AtomicBool>,
    /// For each rank of this process, the rank that it waits for plus one, or 0.
    waiting: Vec<AtomicUsize>,
    /// Nanoseconds that each rank of this process has waited for each other rank.
    waited: Vec<OnceLock<Box<[AtomicU64]>>>,
    wakers: Mutex<Vec<Waker>>,
}

kolo_schedule::opaque_debug!(Liveness { failed });

impl Liveness {
    /// Creates the state of a group of `world` ranks, all of them present.
    pub fn new(world: usize) -> Self {
        Liveness {
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            has_failed: Condvar::new(),
            left: (0..world).map(|_| AtomicBool::new(false)).collect(),
            waiting: (0..world).map(|_| AtomicUsize::new(0)).collect(),
            waited: (0..world).map(|_| OnceLock::new()).collect(),
            wakers: Mutex::new(Vec::new()),
        }
    }

    /// Registers a callback that wakes one sleeping wait when a rank fails or leaves.
    pub fn register_waker(&self, waker: Waker) {
        self.wakers.lock().push(waker);
    }

    /// Latches a failure and wakes every wait. Returns the first failure, which is the one that counts.
    pub fn fail(&self, error: Error) -> Error {
        let first = self.failure.lock().get_or_insert(error).clone();
        self.failed.store(true, Ordering::SeqCst);
        self.has_failed.notify_all();
        self.wake();
        first
    }

    /// Records that a rank has left in good order.
    pub fn leave(&self, rank: Rank) {
        if let Some(left) = self.left.get(rank.0) {
            left.store(true, Ordering::SeqCst);
        }
        self.wake();
    }

    /// Returns true if a rank has left in good order.
    pub fn has_left(&self, rank: Rank) -> bool {
        self.left.get(rank.0).is_some_and(|left| left.load(Ordering::SeqCst))
    }

    /// Returns the group's failure, if it has failed.
    #[inline]
    pub fn failure(&self) -> Option<Error> {
        if self.failed.load(Ordering::SeqCst) { self.failure.lock().clone() } else { None }
    }

    /// Waits for the group's failure; returns `None` after `timeout`.
    pub fn wait_for_failure(&self, timeout: Duration) -> Option<Error> {
        let mut failure = self.failure.lock();
        self.has_failed.wait_while_for(&mut failure, |failure| failure.is_none(), timeout);
        failure.clone()
    }

    /// Returns the reason for a broken connection: the group's failure, if known within a second, or
    /// `error`.
    pub fn failure_or(&self, error: Error) -> Error {
        self.wait_for_failure(Duration::from_secs(1)).unwrap_or(error)
    }

    /// Returns the rank that `rank` waits for at this moment, if `rank` belongs to this process.
    pub fn waiting_for(&self, rank: Rank) -> Option<Rank> {
        self.waiting[rank.0].load(Ordering::SeqCst).checked_sub(1).map(Rank)
    }

    /// Records that `here`, a rank of this process, waits for `peer`, until the guard is dropped. Both are
    /// ranks of the job. A wait that ends after `deadline` stays recorded, as evidence against `peer`.
    pub fn begin_wait(&self, here: Rank, peer: Rank, deadline: Instant) -> WaitGuard<'_> {
        let note = &self.waiting[here.0];
        note.store(peer.0 + 1, Ordering::SeqCst);
        WaitGuard { note, deadline, began: Instant::now(), waited: &self.waits_of(here)[peer.0] }
    }

    /// Returns the time that `here`, a rank of this process, has slept until `peer` sent or took data. Both
    /// are ranks of the job.
    pub fn waited(&self, here: Rank, peer: Rank) -> Duration {
        Duration::from_nanos(self.waits_of(here)[peer.0].load(Ordering::Relaxed))
    }

    /// Returns the times that a rank of this process has waited. They are allocated on first use, since most
    /// ranks belong to other processes.
    fn waits_of(&self, here: Rank) -> &[AtomicU64] {
        self.waited[here.0].get_or_init(|| (0..self.waited.len()).map(|_| AtomicU64::new(0)).collect())
    }

    fn wake(&self) {
        self.wakers.lock().retain(|wake| wake());
    }
}

/// Returns the rank that delays the others: the end of the chain of waits that begins with `blamed`. A rank
/// that waits for another one only passes on the blame. `waiting` returns the rank that a rank waits for, if
/// known, in a group of `world` ranks; a rank that does not answer does not wait.
pub fn culprit(blamed: Rank, world: usize, waiting: impl Fn(Rank) -> Option<Rank>) -> Rank {
    let mut culprit = blamed;
    // A chain longer than the group is a circle, in which no rank is more to blame than another.
    for _ in 0..world {
        match waiting(culprit) {
            Some(next) => culprit = next,
            None => return culprit,
        }
    }
    blamed
}

/// A wait of one rank for another, from [`Liveness::begin_wait`] to its drop.
#[derive(Debug)]
pub struct WaitGuard<'a> {
    note: &'a AtomicUsize,
    deadline: Instant,
    began: Instant,
    waited: &'a AtomicU64,
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let nanos = now.saturating_duration_since(self.began).as_nanos();
        self.waited.fetch_add(u64::try_from(nanos).unwrap_or(u64::MAX), Ordering::Relaxed);
        // A wait past its deadline stays recorded, as evidence against the peer.
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

    #[test]
    fn the_first_failure_counts_and_ends_a_wait() {
        let liveness = Liveness::new(2);
        assert!(liveness.wait_for_failure(Duration::ZERO).is_none());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| liveness.wait_for_failure(Duration::from_secs(60)));
            liveness.fail(Error::Died { rank: Rank(1) });
            let later = liveness.fail(Error::Died { rank: Rank(0) });
            assert_eq!(later.culprit(), Some(Rank(1)));
            assert_eq!(waiting.join().unwrap().and_then(|error| error.culprit()), Some(Rank(1)));
        });
    }
}
