//! How often a rank looks again before it sleeps.
//!
//! The number grows while waits turn out to be short and shrinks while they turn out to be long. Waking a
//! sleeper takes so long that a sleep never looks short: two ranks that wake each other up in turn would
//! never find out that both could answer at once. So now and then a wait tries much longer: a probe. What
//! comes during a probe raises the number; if the next wait is in vain all the same, the others are slow (or
//! the wire is), and probes become rare: a core that looks for what cannot be there is missing where
//! gradients are computed.

use std::time::Duration;

/// Sleeps between probes, at least and at most.
const PROBE: (u32, u32) = (8, 1024);
/// A probe tries so many times as often as a wait else may.
const PATIENT: u32 = 4;
/// A sleep shorter than this would better have been a try.
const SHORT: Duration = Duration::from_micros(40);

/// The number of times that a rank looks in one wait, and what the waits so far say about it.
pub(super) struct AdaptiveSpin {
    least: u32,
    most: u32,
    now: u32,
    /// Sleeps between probes, and sleeps left until the next one.
    interval: u32,
    left: u32,
    /// The last probe has raised the number, and no wait has shown yet whether rightly.
    promised: bool,
}

impl AdaptiveSpin {
    pub(super) fn new(least: u32, most: u32, first: u32) -> Self {
        AdaptiveSpin { least, most, now: first, interval: PROBE.0, left: PROBE.0, promised: false }
    }

    /// How often to look in this wait.
    pub(super) fn limit(&self) -> u32 {
        if self.left == 0 { PATIENT * self.most } else { self.now }
    }

    /// What was waited for came after so many tries.
    pub(super) fn came_after(&mut self, tries: u32) {
        if tries > self.now {
            self.now = (2 * tries).clamp(self.least, self.most);
            self.left = self.interval;
            self.promised = true;
        } else if tries > 0 && self.promised {
            self.promised = false;
            self.interval = PROBE.0;
            self.left = self.left.min(self.interval);
        }
    }

    /// All tries were in vain.
    pub(super) fn gave_up(&mut self) {
        if self.left == 0 || self.promised {
            self.interval = (2 * self.interval).min(PROBE.1);
            self.left = self.interval;
        } else {
            self.left -= 1;
        }
        self.now = if self.promised { self.least } else { (self.now / 2).max(self.least) };
        self.promised = false;
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

    /// Gives up until the next wait is a probe; says how often.
    fn until_probe(spin: &mut AdaptiveSpin) -> u32 {
        (0..)
            .find(|_| {
                spin.limit() == 1024 || {
                    spin.gave_up();
                    false
                }
            })
            .unwrap()
    }

    #[test]
    fn long_waits_make_impatient_and_a_probe_finds_out_that_others_answer() {
        let mut spin = AdaptiveSpin::new(4, 256, 64);
        assert_eq!(until_probe(&mut spin), 8);
        spin.came_after(50);
        assert_eq!(spin.limit(), 100);
        spin.came_after(60);
        spin.gave_up();
        assert_eq!(spin.limit(), 50);
        spin.slept(Duration::from_micros(1));
        assert_eq!(spin.limit(), 200);
        assert_eq!(until_probe(&mut spin), 7, "probes stay frequent while they are worth it");
    }

    #[test]
    fn probes_in_vain_become_rare() {
        let mut spin = AdaptiveSpin::new(4, 256, 64);
        for sleeps in [8, 16, 32, 64, 128, 256, 512, 1024, 1024] {
            assert_eq!(until_probe(&mut spin), sleeps);
            // Something comes in the long wait, and not in the next one.
            spin.came_after(900);
            assert_eq!(spin.limit(), 256);
            spin.gave_up();
            assert_eq!(spin.limit(), 4);
        }
        spin.came_after(5);
        spin.came_after(3);
        assert_eq!(until_probe(&mut spin), 8, "the others have become quick");
    }
}
