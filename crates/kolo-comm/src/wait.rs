//! How a collective waits for its peers: for how long, in which manner, and when waiting makes no sense any
//! more.

use std::cell::Cell;
use std::time::{Duration, Instant};

use kolo_rendezvous::{Error, Liveness, WaitGuard};
use kolo_schedule::Rank;

use crate::fingerprint::Fingerprint;

/// What the thread that has asked for a collective does while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMode {
    /// It waits: the sooner it is over, the better.
    Blocking,
    /// It computes: the less of its core is taken away, the better.
    Background,
}

/// How long one collective waits, and for what. Peers are ranks of the group; errors name the job's ranks.
pub(crate) struct WaitContext<'a> {
    pub(crate) here: Rank,
    /// The job's rank of each of the group's.
    pub(crate) members: &'a [Rank],
    pub(crate) call: Fingerprint,
    pub(crate) mode: WaitMode,
    pub(crate) timeout: Duration,
    pub(crate) liveness: &'a Liveness,
    /// When this rank first waited in earnest: a collective of less than a microsecond does not look at
    /// clocks.
    pub(crate) began: Cell<Option<Instant>>,
}

impl WaitContext<'_> {
    fn deadline(&self) -> Instant {
        let began = self.began.get().unwrap_or_else(Instant::now);
        self.began.set(Some(began));
        began + self.timeout
    }

    /// The job's rank of one of the group's.
    pub(crate) fn name(&self, rank: Rank) -> Rank {
        self.members[rank.0]
    }

    /// Notes that this rank waits for `peer`, until the note is dropped.
    pub(crate) fn waiting(&self, peer: Rank) -> WaitGuard<'_> {
        self.liveness.begin_wait(self.name(self.here), self.name(peer), self.deadline())
    }

    /// Whether waiting for `peer` still makes sense.
    pub(crate) fn check(&self, peer: Rank) -> Result<(), Error> {
        if let Some(error) = self.liveness.failure() {
            return Err(error);
        }
        let rank = self.name(peer);
        if self.liveness.has_left(rank) {
            return Err(Error::Left { rank, during: self.call.to_string() });
        }
        if Instant::now() >= self.deadline() {
            return Err(Error::Timeout { rank, during: self.call.to_string(), waited: self.timeout });
        }
        Ok(())
    }

    /// How long one sleep may last. Wakers end it earlier; the bound is for a clock that needs looking at.
    pub(crate) fn sleep_limit(&self) -> Duration {
        const LONGEST: Duration = Duration::from_millis(200);
        self.deadline().saturating_duration_since(Instant::now()).clamp(Duration::from_millis(1), LONGEST)
    }
}
