//! The header of every message.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::transport::interface::{same_call, same_length};
use crate::wait::WaitContext;
use kolo_rendezvous::Error;
use kolo_schedule::Rank;

/// Bytes of a header: four words, little-endian.
pub(crate) const HEADER: usize = 32;

/// The call that a message belongs to, its length, and its earliest arrival.
#[derive(Debug, PartialEq)]
pub(crate) struct Header {
    pub(crate) call: [u64; 2],
    pub(crate) bytes: u64,
    /// Earliest arrival, in nanoseconds of the host's clock; 0 for none. Simulates distance on one host.
    pub(crate) due: u64,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let words = [self.call[0], self.call[1], self.bytes, self.due];
        for (slot, word) in bytes.chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; HEADER]) -> Header {
        let word = |n: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[8 * n + i]));
        Header { call: [word(0), word(1)], bytes: word(2), due: word(3) }
    }

    pub(crate) fn check(&self, from: Rank, bytes: usize, wait: &WaitContext<'_>) -> Result<(), Error> {
        same_call(self.call, from, wait)?;
        same_length(self.bytes, bytes, from, wait)
    }

    /// Time until the message arrives. At most a second, whatever the sender's clock shows.
    pub(crate) fn under_way(&self) -> Option<Duration> {
        let rest = self.due.checked_sub(now()).filter(|rest| self.due > 0 && *rest > 0)?;
        Some(Duration::from_nanos(rest).min(Duration::from_secs(1)))
    }
}

/// Arrival time of a message that is sent now, over a link with latency `delay`; 0 without one.
pub(crate) fn due(delay: Duration) -> u64 {
    if delay.is_zero() { 0 } else { now() + delay.as_nanos() as u64 }
}

/// Nanoseconds of the clock that all processes of a host share.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_the_way() {
        let header = Header { call: [1, u64::MAX], bytes: 3, due: 4 };
        assert_eq!(Header::decode(&header.encode()), header);
    }

    #[test]
    fn a_message_is_under_way_until_it_is_due() {
        let header = |due| Header { call: [0; 2], bytes: 0, due };
        assert_eq!(header(0).under_way(), None);
        assert_eq!(header(1).under_way(), None, "long ago");
        let rest = header(due(Duration::from_millis(500))).under_way().unwrap();
        assert!(rest > Duration::from_millis(100) && rest <= Duration::from_millis(500));
        assert!(header(u64::MAX).under_way().unwrap() <= Duration::from_secs(1));
    }
}
