//! How often a rank looks again before it sleeps.
//!
//! The number grows while waits turn out to be short and shrinks while they turn out to be long. Waking a sleeper takes so
//! long that a sleep never looks short: two ranks that wake each other up in turn would never find out that both could
//! answer at once. So now and then a wait tries much longer.

use std::time::Duration;

/// After every so many sleeps a wait tries that many times as often as it else may.
const PROBE: u32 = 8;
const PATIENT: u32 = 4;
/// A sleep shorter than this would better have been a try.
pub(super) const SHORT: Duration = Duration::from_micros(40);

/// See the module's text.
pub(super) struct Tries {
    least: u32,
    most: u32,
    now: u32,
    /// Waits so far that ended asleep.
    sleeps: u32,
}

impl Tries {
    pub(super) fn new(least: u32, most: u32, first: u32) -> Self {
        Tries { least, most, now: first, sleeps: 1 }
    }

    /// How often to look in this wait.
    pub(super) fn limit(&self) -> u32 {
        if self.sleeps.is_multiple_of(PROBE) { PATIENT * self.most } else { self.now }
    }

    /// What was waited for came after so many tries.
    pub(super) fn came_after(&mut self, tries: u32) {
        if tries > self.now {
            self.now = (2 * tries).clamp(self.least, self.most);
        }
    }

    /// All tries were in vain.
    pub(super) fn gave_up(&mut self) {
        self.sleeps = self.sleeps.wrapping_add(1);
        self.now = (self.now / 2).max(self.least);
    }

    /// The sleep after that took so long.
    pub(super) fn slept(&mut self, long: Duration) {
        if long < SHORT {
            // Twice what it was before it gave up.
            self.now = (4 * self.now).clamp(self.least, self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_waits_make_impatient_and_a_probe_finds_out_that_others_answer() {
        let mut tries = Tries::new(4, 256, 64);
        (0..6).for_each(|_| tries.gave_up());
        assert_eq!(tries.limit(), 4);
        tries.gave_up();
        assert_eq!(tries.limit(), 1024, "the eighth wait is a probe");
        tries.came_after(100);
        tries.gave_up();
        assert_eq!(tries.limit(), 100);
        tries.slept(Duration::from_micros(1));
        assert_eq!(tries.limit(), 256);
    }
}
