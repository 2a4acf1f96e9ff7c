//! Limits of a wait for the device. NCCL does not report which rank it waits for, so every waiting rank
//! points to the next one, and the first rank that does not wait is the culprit.

use std::time::{Duration, Instant};

use kolo_comm::Group;
use kolo_rendezvous::{Error, WaitGuard};
use kolo_schedule::Rank;

pub(super) struct DeviceWait<'a> {
    group: &'a Group,
    during: &'a str,
    began: Instant,
    /// The first rank that was seen to have left, and when.
    left: Option<(Rank, Instant)>,
    _note: WaitGuard<'a>,
}

/// Time in which a wait polls without sleeping: most collectives are over by then, and sleeping costs more.
const AWAKE: Duration = Duration::from_millis(1);
const SLEEPS: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));
/// Time that the others have to receive the data of a rank that has finished its part and left.
const GRACE: Duration = Duration::from_secs(2);

impl<'a> DeviceWait<'a> {
    pub(super) fn new(group: &'a Group, during: &'a str) -> Self {
        let began = Instant::now();
        let here = group.members()[group.rank().0];
        let _note = group.liveness().begin_wait(here, Self::next(group), began + group.timeout());
        DeviceWait { group, during, began, left: None, _note }
    }

    /// The job's rank of the next rank of the group.
    fn next(group: &Group) -> Rank {
        group.members()[(group.rank().0 + 1) % group.world_size()]
    }

    /// Waits for one turn; returns an error when waiting no longer makes sense.
    pub(super) fn turn(&mut self) -> Result<(), Error> {
        let liveness = self.group.liveness();
        if let Some(error) = liveness.failure() {
            return Err(error);
        }
        let now = Instant::now();
        let waited = now - self.began;
        if self.left.is_none() {
            let gone = self.group.members().iter().find(|rank| liveness.has_left(**rank));
            self.left = gone.map(|rank| (*rank, now));
        }
        if let Some((rank, since)) = self.left
            && now - since > GRACE
        {
            return Err(Error::Left { rank, during: self.during.into() });
        }
        if waited >= self.group.timeout() {
            let (rank, waited) = (Self::next(self.group), self.group.timeout());
            return Err(Error::Timeout { rank, during: self.during.into(), waited });
        }
        match waited < AWAKE {
            true => std::thread::yield_now(),
            false => std::thread::sleep((waited / 20).clamp(SLEEPS.0, SLEEPS.1)),
        }
        Ok(())
    }
}
