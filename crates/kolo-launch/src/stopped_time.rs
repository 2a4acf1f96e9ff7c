//! Measures the time for which a process has been stopped (SIGSTOP).

use std::time::{Duration, Instant};

/// The time for which a process has been stopped, added up between observations. If a job manager stopped
/// the launcher, too, it made no observations, and that time does not count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoppedTime {
    /// The last observation, if the process was stopped then, and the total time so far.
    last: Option<(Instant, Duration)>,
}

/// Maximum time that counts between two observations.
const MAX_INTERVAL: Duration = Duration::from_millis(500);

impl StoppedTime {
    /// Returns the time for which the process has been stopped at the last observation.
    pub fn total(&self) -> Duration {
        self.last.map_or(Duration::ZERO, |(_, total)| total)
    }

    /// Records whether the process is stopped. Returns the time for which it has been.
    pub fn observe(&mut self, stopped: bool, now: Instant) -> Duration {
        self.last = stopped.then(|| match self.last {
            Some((last, total)) => (now, total + now.saturating_duration_since(last).min(MAX_INTERVAL)),
            None => (now, Duration::ZERO),
        });
        self.total()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_between_observations_counts() {
        let (begin, ms) = (Instant::now(), Duration::from_millis);
        let mut time = StoppedTime::default();
        let observations = [
            (0, true, 0),
            (100, true, 100),
            (200, true, 200),
            (60_000, true, 700),
            (60_100, false, 0),
            (60_200, true, 0),
            (60_300, true, 100),
        ];
        for (at, stopped, total) in observations {
            assert_eq!(time.observe(stopped, begin + ms(at)), ms(total), "at {at} ms");
        }
    }
}
