//! Number of tries of a waiting rank before it sleeps.
//!
//! The number grows while waits turn out to be short and shrinks while they turn out to be long. Waking a
//! sleeper takes so long that a sleep never looks short: two ranks that wake each other in turn would never
//! notice that both could answer at once. So now and then a wait tries much longer: a probe. If the message
//! arrives during a probe, the number rises. If the next wait is in vain all the same, the peers or the wire
//! are slow, and probes become rare: a core that spins in vain is missing for computing gradients.

//!
//! A try that yields may take long: since Linux 6.18 a thread that yields gives up its share of the core, so
//! beside other programs that compute, a thread that yields again and again hardly ever runs. Then waits sleep
//! at once for a while: briefly at first, because a virtual machine's host may have had the core, and longer
//! each time that the next yields take as long.

use std::time::{Duration, Instant};

/// Number of sleeps between probes, minimum and maximum.
const PROBE: (u32, u32) = (8, 1024);
/// Tries of a probe, as a multiple of the most that other waits have.
const PATIENT: u32 = 4;
/// A sleep shorter than this should have been a try.
const SHORT: Duration = Duration::from_micros(40);
/// A yield longer than this went to other programs: a few slices of the scheduler, which the ranks that share
/// the core may use as well, are shorter.
const STARVED: Duration = Duration::from_millis(8);
/// Number of waits that sleep at once after such a yield, at first and at most.
const REST: (u32, u32) = (2, 256);
/// Number of waits without such a yield after which the next one counts as the first.
const CALM: u32 = 64;

/// The number of tries in one wait, and its history.
pub(super) struct AdaptiveSpin {
    least: u32,
    most: u32,
    now: u32,
    /// Number of sleeps between probes, and sleeps left until the next one.
    interval: u32,
    left: u32,
    /// True if the last probe has raised the number and no wait has confirmed it yet.
    promised: bool,
    /// Number of waits that sleep at once after the next long yield, and number of them that are left.
    rest: u32,
    resting: u32,
    /// Number of waits since the last rest.
    calm: u32,
}

impl AdaptiveSpin {
    pub(super) fn new(least: u32, most: u32, first: u32) -> Self {
        AdaptiveSpin {
            least,
            most,
            now: first,
            interval: PROBE.0,
            left: PROBE.0,
            promised: false,
            rest: REST.0,
            resting: 0,
            calm: 0,
        }
    }

    pub(super) fn limit(&self) -> u32 {
        match (self.resting, self.left) {
            (1.., _) => 0,
            (0, 0) => PATIENT * self.most,
            (0, _) => self.now,
        }
    }

    /// Steps behind the other threads of this core. Returns false if the wait should sleep, because other
    /// programs have had the core meanwhile.
    pub(super) fn step_behind(&mut self) -> bool {
        let begun = Instant::now();
        std::thread::yield_now();
        self.yielded(begun.elapsed())
    }

    /// Records the length of a yield; false if it was too long.
    fn yielded(&mut self, long: Duration) -> bool {
        if long > STARVED && self.resting == 0 {
            self.rest = if self.calm > CALM { REST.0 } else { (2 * self.rest).min(REST.1) };
            self.resting = self.rest;
            self.calm = 0;
        }
        self.resting == 0
    }

    /// Records a wait that succeeded after this many tries.
    pub(super) fn came_after(&mut self, tries: u32) {
        self.calm = self.calm.saturating_add(1);
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

    /// Records a wait whose tries were all in vain.
    pub(super) fn gave_up(&mut self) {
        if self.resting > 0 {
            self.resting -= 1;
            return;
        }
        self.calm = self.calm.saturating_add(1);
        if self.left == 0 || self.promised {
            self.interval = (2 * self.interval).min(PROBE.1);
            self.left = self.interval;
        } else {
            self.left -= 1;
        }
        self.now = if self.promised { self.least } else { (self.now / 2).max(self.least) };
        self.promised = false;
    }

    /// Records the length of the sleep after such a wait.
    pub(super) fn slept(&mut self, long: Duration) {
        if long < SHORT {
            // Twice the number before the tries were in vain.
            self.now = (4 * self.now).clamp(self.least, self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives up until the next wait is a probe; returns how often.
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

    /// Sleeps at once until waits try again; returns how often.
    fn rests(spin: &mut AdaptiveSpin) -> u32 {
        (0..)
            .find(|_| {
                spin.limit() > 0 || {
                    spin.gave_up();
                    false
                }
            })
            .unwrap()
    }

    #[test]
    fn waits_sleep_at_once_after_a_yield_to_other_programs() {
        let mut spin = AdaptiveSpin::new(4, 256, 64);
        assert!(spin.yielded(STARVED), "as long as a few slices of the ranks");
        for rest in [4, 8, 16, 32, 64, 128, 256, 256] {
            assert!(!spin.yielded(2 * STARVED));
            assert_eq!(rests(&mut spin), rest);
            assert_eq!(spin.limit(), 64, "as before");
        }
        for _ in 0..=CALM {
            spin.came_after(1);
        }
        assert!(!spin.yielded(2 * STARVED));
        assert_eq!(rests(&mut spin), 2, "it may have been a single time");
    }

    #[test]
    fn probes_in_vain_become_rare() {
        let mut spin = AdaptiveSpin::new(4, 256, 64);
        for sleeps in [8, 16, 32, 64, 128, 256, 512, 1024, 1024] {
            assert_eq!(until_probe(&mut spin), sleeps);
            // The message arrives in the long wait, but not in the next one.
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
