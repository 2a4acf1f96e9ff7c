//! Waiting of a collective for its peers: for how long, in which manner, and until when it makes sense.

use std::cell::Cell;
use std::time::{Duration, Instant};

use kolo_rendezvous::{Error, Liveness, WaitGuard};
use kolo_schedule::Rank;

use crate::fingerprint::Fingerprint;

/// Activity of the caller's thread while a collective runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMode {
    /// The thread waits: the sooner the collective is over, the better.
    Blocking,
    /// The thread computes: the less the collective takes of its core, the better.
    Background,
}

/// Longest time that a rank that is done stays for others: they may still have to read its messages, and
/// without rank 0's store they would lose each other.
pub const LINGER: Duration = Duration::from_secs(10);

thread_local! {
    static INTERRUPTED: Cell<Option<fn() -> bool>> = const { Cell::new(None) };
}

/// Runs `work`, whose collectives on this thread give up soon after `is_interrupted` returns true. It is
/// asked about ten times a second, and only while a collective waits for others.
pub fn interruptible<R>(is_interrupted: fn() -> bool, work: impl FnOnce() -> R) -> R {
    /// Restores the outer function, even if `work` panics.
    struct Restore(Option<fn() -> bool>);
    impl Drop for Restore {
        fn drop(&mut self) {
            INTERRUPTED.set(self.0);
        }
    }
    let _restore = Restore(INTERRUPTED.replace(Some(is_interrupted)));
    work()
}

/// The limits of one collective's waits. Peers are ranks of the group; errors name the job's ranks.
pub struct WaitContext<'a> {
    /// This rank.
    pub here: Rank,
    /// The job's rank of each rank of the group.
    pub members: &'a [Rank],
    /// The collective.
    pub call: Fingerprint,
    /// Activity of the caller's thread.
    pub mode: WaitMode,
    /// Longest time to wait for others.
    pub timeout: Duration,
    /// Presence of the group's ranks, and its first failure.
    pub liveness: &'a Liveness,
    /// Time at which this rank first slept; a collective of less than a microsecond does not read clocks.
    pub began: Cell<Option<Instant>>,
    /// Time of the last check that waiting still makes sense.
    pub looked: Cell<Option<Instant>>,
    /// Time of the last question whether this thread was interrupted.
    asked: Cell<Option<Instant>>,
}

kolo_schedule::opaque_debug!(WaitContext<'_> { here, timeout });

/// Time between two questions whether a waiting thread was interrupted.
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(100);

/// Absence after which waited time does not count. A waiting rank reads the clock much more often. After
/// a longer pause it, or its machine, was stopped, and likely the peers, too.
const ABSENT: Duration = Duration::from_secs(2);

impl<'a> WaitContext<'a> {
    /// Begins a wait of the rank `here`.
    #[inline]
    pub fn new(
        here: Rank,
        members: &'a [Rank],
        call: Fingerprint,
        mode: WaitMode,
        timeout: Duration,
        liveness: &'a Liveness,
    ) -> Self {
        let (began, looked, asked) = (Cell::new(None), Cell::new(None), Cell::new(None));
        WaitContext { here, members, call, mode, timeout, liveness, began, looked, asked }
    }

    fn deadline(&self) -> Instant {
        let began = self.began.get().unwrap_or_else(Instant::now);
        self.began.set(Some(began));
        began + self.timeout
    }

    /// The job's rank of a rank of the group.
    #[inline]
    pub fn name(&self, rank: Rank) -> Rank {
        self.members[rank.0]
    }

    /// Records that this rank waits for `peer` until the guard is dropped.
    pub fn waiting(&self, peer: Rank) -> WaitGuard<'_> {
        self.liveness.begin_wait(self.name(self.here), self.name(peer), self.deadline())
    }

    /// Checks that waiting for `peer` still makes sense.
    pub fn check(&self, peer: Rank) -> Result<(), Error> {
        if let Some(error) = self.liveness.failure() {
            return Err(error);
        }
        let rank = self.name(peer);
        if self.liveness.has_left(rank) {
            return Err(Error::Left { rank, during: self.call.to_string() });
        }
        let now = Instant::now();
        self.forget_absence(now);
        if self.is_interrupted(now) {
            let rank = self.name(self.here);
            return Err(Error::Abandoned { rank, reason: format!("interrupted in {}", self.call) });
        }
        if now >= self.deadline() {
            return Err(Error::Timeout { rank, during: self.call.to_string(), waited: self.timeout });
        }
        Ok(())
    }

    fn is_interrupted(&self, now: Instant) -> bool {
        let Some(is_interrupted) = INTERRUPTED.get() else { return false };
        let asked = self.asked.get().unwrap_or(now);
        let due = now >= asked + BETWEEN_QUESTIONS;
        self.asked.set(Some(if due { now } else { asked }));
        due && is_interrupted()
    }

    /// Extends the peers' time by the time in which this rank did not run.
    fn forget_absence(&self, now: Instant) {
        let last = self.looked.replace(Some(now)).unwrap_or(now);
        let away = now.saturating_duration_since(last);
        if away > ABSENT
            && let Some(began) = self.began.get()
        {
            log::info!("{} did not run for {away:.1?}; it goes on waiting", self.name(self.here));
            self.began.set(Some(began + away));
        }
    }

    /// Longest time of one sleep. Wakers end it earlier; the limit makes the rank look at the clock.
    pub fn sleep_limit(&self) -> Duration {
        const LONGEST: Duration = Duration::from_millis(200);
        self.deadline().saturating_duration_since(Instant::now()).clamp(Duration::from_millis(1), LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use kolo_schedule::{DType, Op};

    use super::*;
    use crate::fingerprint::{Call, CollectiveKind};

    #[test]
    fn time_in_which_this_process_did_not_run_does_not_count() {
        let (liveness, members) = (Liveness::new(2), [Rank(0), Rank(1)]);
        let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds));
        let (kind, op, dtype) = (CollectiveKind::AllReduce, Op::Sum, DType::F32);
        for (began, looked, gives_up) in [(30, 30, false), (30, 25, false), (30, 1, true), (8, 8, false)] {
            let call = Fingerprint::new(&Call {
                kind,
                op,
                root: None,
                readers: None,
                dtype,
                elements: 3,
                algorithm: 0,
            });
            let timeout = Duration::from_secs(10);
            let context = WaitContext {
                began: Cell::new(ago(began)),
                looked: Cell::new(ago(looked)),
                ..WaitContext::new(Rank(0), &members, call, WaitMode::Blocking, timeout, &liveness)
            };
            assert_eq!(
                context.check(Rank(1)).is_err(),
                gives_up,
                "began {began} s ago, looked {looked} s ago"
            );
        }
    }
}
