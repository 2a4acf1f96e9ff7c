//! Offset of a rank's clock from that of rank 0, measured as by NTP (RFC 5905, section 8).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kolo_comm::{Error, Group, Rank};
use serde::{Deserialize, Serialize};

/// Offset of a clock from that of rank 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// Seconds by which it is ahead of rank 0's.
    pub ahead: f64,
    /// Maximum error of `ahead`, in seconds.
    pub uncertainty: f64,
}

/// Number of round trips, of which the fastest counts.
const ROUND_TRIPS: usize = 5;

impl Clock {
    /// Measures the clock of this rank. A collective: rank 0 answers the other ranks, one after another.
    /// Fails if a collective fails (naming the rank).
    pub fn measure(group: &Group) -> Result<Clock, Error> {
        let mut best: Option<Clock> = None;
        for other in (1..group.world_size()).map(Rank) {
            for _ in 0..ROUND_TRIPS {
                if group.rank() == Rank(0) {
                    group.receive(&mut [0u8], other)?;
                    group.send(&[nanoseconds()], other)?;
                } else if group.rank() == other {
                    let (sent, mut answer) = (nanoseconds(), [0i64]);
                    group.send(&[0u8], Rank(0))?;
                    group.receive(&mut answer, Rank(0))?;
                    let found = offset(sent, answer[0], nanoseconds());
                    best = best.filter(|known| known.uncertainty <= found.uncertainty).or(Some(found));
                }
            }
        }
        Ok(best.unwrap_or_default())
    }
}

/// Computes the offset; rank 0's clock showed `answer` at some moment between `sent` and `received`.
fn offset(sent: i64, answer: i64, received: i64) -> Clock {
    let seconds = |nanoseconds: i64| nanoseconds as f64 / 1e9;
    let half = (received - sent) / 2;
    Clock { ahead: seconds(sent + half - answer), uncertainty: seconds(half.abs()) }
}

fn nanoseconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.unwrap_or(Duration::ZERO).as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_from_the_middle_of_the_wait() {
        let clock = offset(10_000_000_000, 5_000_000_000, 10_200_000_000);
        assert!((clock.ahead - 5.1).abs() < 1e-9 && (clock.uncertainty - 0.1).abs() < 1e-9, "{clock:?}");
    }

    #[test]
    fn clocks_of_one_host_are_one() {
        kolo_comm::threads::spawn(3, |group| {
            let clock = Clock::measure(&group).unwrap();
            assert!(clock.ahead.abs() <= clock.uncertainty + 1e-3, "{clock:?}");
        })
        .unwrap();
    }
}
