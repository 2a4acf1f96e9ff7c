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
    /// When it last looked whether waiting still makes sense.
    pub(crate) looked: Cell<Option<Instant>>,
}

/// A rank that waits looks at the clock much more often than this. If it has not for longer it did not run:
/// it was stopped, or its machine was, and likely the peers with it. That time does not count.
const ABSENT: Duration = Duration::from_secs(2);

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
        let now = Instant::now();
        self.forget_absence(now);
        if now >= self.deadline() {
            return Err(Error::Timeout { rank, during: self.call.to_string(), waited: self.timeout });
        }
        Ok(())
    }

    /// Gives the peers time again for which this rank did not run.
    fn forget_absence(&self, now: Instant) {
        let last = self.looked.replace(Some(now)).unwrap_or(now);
        let away = now.saturating_duration_since(last);
        if away > ABSENT
            && let Some(began) = self.began.get()
        {
            log::info!("{} did not run for {away:.1?}; it goes on waiting", self.here);
            self.began.set(Some(began + away));
        }
    }

    /// How long one sleep may last. Wakers end it earlier; the bound is for a clock that needs looking at.
    pub(crate) fn sleep_limit(&self) -> Duration {
        const LONGEST: Duration = Duration::from_millis(200);
        self.deadline().saturating_duration_since(Instant::now()).clamp(Duration::from_millis(1), LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use kolo_schedule::{DType, Op};

    use super::*;
    use crate::collective::CollectiveKind;
    use crate::fingerprint::Call;

    #[test]
    fn time_in_which_this_process_did_not_run_does_not_count() {
        let (liveness, members) = (Liveness::new(2), [Rank(0), Rank(1)]);
        let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds));
        let (kind, op, dtype) = (CollectiveKind::AllReduce, Op::Sum, DType::F32);
        for (began, looked, gives_up) in [(30, 30, false), (30, 25, false), (30, 1, true), (8, 8, false)] {
            let context = WaitContext {
                here: Rank(0),
                members: &members,
                call: Fingerprint::new(&Call { kind, op, root: None, dtype, elements: 3, algorithm: 0 }),
                mode: WaitMode::Blocking,
                timeout: Duration::from_secs(10),
                liveness: &liveness,
                began: Cell::new(ago(began)),
                looked: Cell::new(ago(looked)),
            };
            assert_eq!(
                context.check(Rank(1)).is_err(),
                gives_up,
                "began {began} s ago, looked {looked} s ago"
            );
        }
    }
}
