//! Agreement of the ranks in every step: if any of them used a parameter more or less often than expected,
//! and the magnitude of their contributions. The observers' messages travel with it.

use std::time::Duration;

use kolo_comm::backend::WaitMode;
use kolo_comm::schedule::Chunks;
use kolo_comm::{Collective, Group, Op};

use super::finiteness::Magnitude;
use super::observer_messages::{FLAGS, ObserverMessage, Received};
use crate::exchange::Exchange;
use crate::wait_time::timed;
use kolo_reduction::Error;

/// Observations of a rank in its own passes, or after the agreement of all ranks.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    /// True if a parameter was used more or less often than expected.
    pub(super) unexpected: bool,
    /// The worst of all contributions to parameters, and of those to statistics.
    pub(super) gradient: Magnitude,
    pub(super) statistic: Magnitude,
}

/// Bytes of [`Seen`].
const SEEN: usize = 3;

impl Seen {
    fn to_bytes(self) -> [u8; SEEN] {
        [u8::from(self.unexpected), self.gradient.to_byte(), self.statistic.to_byte()]
    }

    fn of_bytes([unexpected, gradient, statistic]: [u8; SEEN]) -> Self {
        let [gradient, statistic] = [gradient, statistic].map(Magnitude::of_byte);
        Seen { unexpected: unexpected != 0, gradient, statistic }
    }
}
/// Bytes of a fingerprint.
const PRINT: usize = size_of::<u64>();
/// Bytes of a number.
const NUMBER: usize = size_of::<f64>();
/// Bytes before the numbers of single ranks.
const HEAD: usize = SEEN + FLAGS + 2 * PRINT;

/// The agreement of one step in flight: a few bytes of the step and of its observers from every rank, a
/// fingerprint of settings that must be the same on all ranks, and the observers' numbers if there are any.
#[derive(Default)]
pub(super) struct Agreement {
    flags: Option<Exchange<u8>>,
    numbers: Option<Exchange<f64>>,
}

impl Agreement {
    /// Sends this rank's observations, its observers' message, and `places` to the other ranks. All ranks
    /// have equally many `places`; each of them is filled by one rank and +0 on the others.
    pub(super) fn start(
        &mut self,
        group: &Group,
        mode: WaitMode,
        seen: Seen,
        message: &ObserverMessage,
        places: &[f64],
    ) -> Result<(), Error> {
        if let Some(own) = &message.numbers {
            let mut buffer = group.alloc::<f64>(own.len() * group.world_size())?;
            buffer[group.rank().0 * own.len()..][..own.len()].copy_from_slice(own);
            let gather = Collective::AllGather(Chunks::Equal);
            self.numbers = Some(Exchange::new(group, mode, gather, buffer));
        }
        let mut flags = group.alloc::<u8>(HEAD + NUMBER * places.len())?;
        flags[..SEEN].copy_from_slice(&seen.to_bytes());
        flags[SEEN..][..FLAGS].copy_from_slice(&message.flags);
        // The maximum of each byte equals its minimum if all ranks have the same.
        flags[SEEN + FLAGS..][..PRINT].copy_from_slice(&message.settings.to_le_bytes());
        flags[SEEN + FLAGS + PRINT..HEAD].copy_from_slice(&(!message.settings).to_le_bytes());
        // The bytewise maximum of a number that is 0 on all ranks but one is that rank's number.
        let numbers = flags[HEAD..].chunks_exact_mut(NUMBER).zip(places);
        numbers.for_each(|(place, number)| place.copy_from_slice(&number.to_le_bytes()));
        self.flags = Some(Exchange::new(group, mode, Collective::AllReduce(Op::Max), flags));
        Ok(())
    }

    /// Waits for the other ranks; returns the observations of all ranks, and their observers' messages.
    /// `None` if the step is not synchronized, so that nothing was started.
    pub(super) fn finish(
        &mut self,
        group: &Group,
        exposed: &mut Duration,
    ) -> Result<Option<(Seen, Received)>, Error> {
        let mut received = Received::default();
        if let Some(pending) = self.numbers.take() {
            received.numbers = Some(timed(exposed, "stragglers' figures", || pending.wait(group))?.to_vec());
        }
        let Some(pending) = self.flags.take() else { return Ok(None) };
        let flags = timed(exposed, "the agreement", || pending.wait(group))?;
        received.flags = Some(std::array::from_fn(|flag| flags[SEEN + flag]));
        let (numbers, _) = flags[HEAD..].as_chunks::<NUMBER>();
        received.by_shard = numbers.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
        let (largest, smallest) = flags[SEEN + FLAGS..HEAD].split_at(PRINT);
        received.settings_differ =
            largest.iter().zip(smallest).any(|(largest, smallest)| *largest != !*smallest);
        Ok(Some((Seen::of_bytes(std::array::from_fn(|byte| flags[byte])), received)))
    }
}
