//! Notices about long waits: a silent process looks like a hang.

use std::time::{Duration, Instant};

/// Time until the first notice. Each later pause is twice as long as the one before.
const FIRST: Duration = Duration::from_secs(5);
/// Maximum pause between two notices.
const LONGEST: Duration = Duration::from_secs(60);

/// Schedule of the notices about one wait.
#[derive(Debug)]
pub struct WaitNotice {
    began: Instant,
    next: Duration,
    pause: Duration,
}

impl Default for WaitNotice {
    fn default() -> Self {
        WaitNotice::new()
    }
}

impl WaitNotice {
    /// Starts a wait now.
    pub fn new() -> WaitNotice {
        WaitNotice { began: Instant::now(), next: FIRST, pause: FIRST }
    }

    /// Returns the duration of the wait in whole seconds, if a notice is due.
    pub fn due(&mut self) -> Option<Duration> {
        self.due_after(self.began.elapsed())
    }

    fn due_after(&mut self, waited: Duration) -> Option<Duration> {
        if waited < self.next {
            return None;
        }
        self.pause = (2 * self.pause).min(LONGEST);
        self.next = waited + self.pause;
        Some(Duration::from_secs(waited.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_of_five_minutes_gives_a_few_notices() {
        let mut notice = WaitNotice::new();
        let notices: Vec<u64> = (0..=300_u64)
            .filter_map(|second| Some(notice.due_after(Duration::from_secs(second))?.as_secs()))
            .collect();
        assert_eq!(notices, [5, 15, 35, 75, 135, 195, 255]);
    }
}
