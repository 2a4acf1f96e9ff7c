//! For how long a process has been stopped.

use std::time::{Duration, Instant};

/// Adds up time between looks. A launcher that was stopped itself, by a job manager along with the whole job, has not looked
/// meanwhile, and that time does not count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stillness {
    /// The last look, if it stood still then, and for how long it had.
    seen: Option<(Instant, Duration)>,
}

/// The most that the time between two looks counts.
const MOST: Duration = Duration::from_millis(500);

impl Stillness {
    /// Another look. For how long it has stood still.
    pub fn look(&mut self, still: bool, now: Instant) -> Duration {
        self.seen = still.then(|| match self.seen {
            Some((last, total)) => (now, total + now.saturating_duration_since(last).min(MOST)),
            None => (now, Duration::ZERO),
        });
        self.seen.map_or(Duration::ZERO, |(_, total)| total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_looks_count() {
        let (begin, ms) = (Instant::now(), Duration::from_millis);
        let mut stillness = Stillness::default();
        let looks = [
            (0, true, 0),
            (100, true, 100),
            (200, true, 200),
            (60_000, true, 700),
            (60_100, false, 0),
            (60_200, true, 0),
            (60_300, true, 100),
        ];
        for (at, still, total) in looks {
            assert_eq!(stillness.look(still, begin + ms(at)), ms(total), "at {at} ms");
        }
    }
}
