//! How long a rank waits for others in a collective.
//!
//! A fixed time is either so short that a slow step counts as a dead worker, or so long that a hung one goes unnoticed for
//! half an hour. Unless the user says otherwise it follows what collectives have taken so far, including the time in
//! which this rank waited for others to come.

use std::time::Duration;

/// See the module's text.
#[derive(Clone, Debug)]
pub(crate) enum Deadline {
    /// What the user has said.
    Fixed(Duration),
    /// The longest collective so far.
    Following(Duration),
}

/// Times the longest collective so far.
const FACTOR: u32 = 20;
/// However quick collectives are: one rank may write a checkpoint while the others wait.
const LEAST: Duration = Duration::from_secs(120);

impl Deadline {
    pub(crate) fn new(wish: Option<Duration>) -> Self {
        wish.map_or(Deadline::Following(Duration::ZERO), Deadline::Fixed)
    }

    /// How long the next collective may take.
    pub(crate) fn patience(&self) -> Duration {
        match self {
            Deadline::Fixed(wish) => *wish,
            Deadline::Following(longest) => LEAST.max(longest.saturating_mul(FACTOR)),
        }
    }

    /// A collective took so long.
    pub(crate) fn note(&mut self, took: Duration) {
        if let Deadline::Following(longest) = self {
            *longest = took.max(*longest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_longest_collective_above_a_floor_unless_told() {
        let seconds = Duration::from_secs;
        let mut deadline = Deadline::new(None);
        assert_eq!(deadline.patience(), LEAST);
        deadline.note(seconds(30));
        deadline.note(seconds(1));
        assert_eq!(deadline.patience(), seconds(600));
        let mut fixed = Deadline::new(Some(seconds(5)));
        fixed.note(seconds(30));
        assert_eq!(fixed.patience(), seconds(5));
    }
}
