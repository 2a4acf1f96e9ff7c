//! Pace of a generation: the time of its work, and thus how long its members have until they count as hung.
//!
//! An elastic job can go on without a hung worker, so finding one soon pays. A wrong suspicion costs
//! little: the other workers end the generation and wait at the meeting, where the suspect rejoins them.
//! So deadlines are short. They follow two times of this generation: the longest wait for others, and the
//! longest time that this member itself let pass between two collectives, as others may. Before and
//! during the first steps, which load and compile, nothing is concluded.

use parking_lot::Mutex;
use std::time::Duration;

/// Deadline as a multiple of the longest time seen.
const FACTOR: u32 = 10;
/// Shortest deadline, however fast the work is: a machine may be busy with something else.
const LEAST: Duration = Duration::from_secs(15);
/// Shortest deadline while the pace is not known yet.
const UNKNOWN: Duration = Duration::from_secs(120);
/// Number of steps before times are measured, because the first ones differ, and before they are trusted.
const MEASURED: u32 = 1;
const TRUSTED: u32 = 4;

/// The times of a generation's steps, and the resulting deadline. A member's `Pace` outlives generations.
#[derive(Debug)]
pub struct Pace(Mutex<State>);

#[derive(Debug)]
struct State {
    steps: u32,
    longest: Duration,
    /// Shortest deadline. It doubles when a deadline runs out: an event such as an evaluation by one rank
    /// may happen again.
    least: Duration,
}

impl Pace {
    /// Creates a pace whose shortest deadline is `least`, if the user has set one.
    pub fn new(least: Option<Duration>) -> Pace {
        Pace(Mutex::new(State { steps: 0, longest: Duration::ZERO, least: least.unwrap_or(LEAST) }))
    }

    /// Begins a generation.
    pub fn begin(&self) {
        let mut state = self.0.lock();
        (state.steps, state.longest) = (0, Duration::ZERO);
    }

    /// Records that a step is done.
    pub fn step_done(&self) {
        let mut state = self.0.lock();
        state.steps = state.steps.saturating_add(1);
        if state.steps == MEASURED {
            state.longest = Duration::ZERO;
        }
    }

    /// Records the time of a collective, or between two of them.
    pub fn note(&self, took: Duration) {
        let mut state = self.0.lock();
        state.longest = state.longest.max(took);
    }

    /// Records that a deadline of this length has run out.
    pub fn ran_out(&self, deadline: Duration) {
        let mut state = self.0.lock();
        state.least = state.least.max(deadline.saturating_mul(2));
    }

    /// Longest time that a member may take; `None` while that is not known.
    pub fn known(&self) -> Option<Duration> {
        let state = self.0.lock();
        (state.steps >= TRUSTED).then(|| state.deadline(state.least))
    }

    /// Longest time to wait for others in a collective.
    pub fn deadline(&self) -> Duration {
        let state = self.0.lock();
        let least = if state.steps >= TRUSTED { state.least } else { state.least.max(UNKNOWN) };
        state.deadline(least)
    }
}

impl State {
    fn deadline(&self, least: Duration) -> Duration {
        least.max(self.longest.saturating_mul(FACTOR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_follow_the_steps_after_the_first() {
        let seconds = Duration::from_secs;
        let pace = Pace::new(None);
        pace.note(seconds(40));
        assert_eq!(pace.deadline(), seconds(400));
        for _ in 0..TRUSTED {
            assert_eq!(pace.known(), None);
            pace.step_done();
        }
        assert_eq!((pace.known(), pace.deadline()), (Some(LEAST), LEAST), "the first step does not count");
        pace.note(seconds(3));
        pace.note(seconds(1));
        assert_eq!(pace.deadline(), seconds(30));
        pace.ran_out(seconds(30));
        assert_eq!(pace.deadline(), seconds(60));
        pace.begin();
        assert_eq!((pace.known(), pace.deadline()), (None, UNKNOWN));
        (0..TRUSTED).for_each(|_| pace.step_done());
        assert_eq!(pace.deadline(), seconds(60), "what was learned once stays");
    }

    #[test]
    fn the_user_can_set_a_shorter_deadline() {
        let pace = Pace::new(Some(Duration::from_secs(2)));
        (0..TRUSTED).for_each(|_| pace.step_done());
        assert_eq!(pace.known(), Some(Duration::from_secs(2)));
    }
}
