//! Timeout of a rank that waits for others in a collective.
//!
//! A fixed timeout is either so short that a slow step counts as a dead worker, or so long that a hung
//! one goes unnoticed for half an hour. Unless the user sets it, the timeout follows the time of past
//! collectives, including the time in which this rank waited for others to arrive.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::pace::Pace;
use kolo_rendezvous::Error;

/// Longest time that a group's next collective may take.
#[derive(Clone, Debug)]
pub(crate) enum Deadline {
    /// The user's setting.
    Fixed(Duration),
    /// A multiple of the longest collective so far.
    Following(Duration),
    /// A limit from the pace of an elastic job's generation, unless the user has set one.
    Paced { pace: Arc<Pace>, fixed: Option<Duration>, last: Option<Instant> },
}

/// Timeout as a multiple of the longest collective so far.
const FACTOR: u32 = 20;
/// Lower limit of the timeout: one rank may write a checkpoint while the others wait.
const LEAST: Duration = Duration::from_secs(120);

impl Deadline {
    pub(crate) fn new(fixed: Option<Duration>) -> Self {
        fixed.map_or(Deadline::Following(Duration::ZERO), Deadline::Fixed)
    }

    /// Measures a generation's pace from now on, and follows it unless the user has set a timeout.
    pub(crate) fn follow(&mut self, pace: Arc<Pace>) {
        let fixed = if let Deadline::Fixed(fixed) = self { Some(*fixed) } else { None };
        *self = Deadline::Paced { pace, fixed, last: None };
    }

    pub(crate) fn pace(&self) -> Option<Arc<Pace>> {
        match self {
            Deadline::Paced { pace, .. } => Some(pace.clone()),
            _ => None,
        }
    }

    /// Longest time that the next collective, which begins now, may take.
    pub(crate) fn limit(&self) -> Duration {
        match self {
            Deadline::Fixed(fixed) => *fixed,
            Deadline::Following(longest) => LEAST.max(longest.saturating_mul(FACTOR)),
            Deadline::Paced { pace, fixed, last } => {
                if let Some(last) = last {
                    pace.note(last.elapsed());
                }
                fixed.unwrap_or_else(|| pace.deadline())
            }
        }
    }

    /// Records the end of a collective. `began` is when this rank first waited for others in it, if it did.
    pub(crate) fn over(&mut self, began: Option<Instant>, result: &Result<(), Error>) {
        let took = began.map_or(Duration::ZERO, |began| began.elapsed());
        match (self, result) {
            (Deadline::Following(longest), Ok(())) => *longest = took.max(*longest),
            (Deadline::Paced { pace, last, .. }, Ok(())) => {
                pace.note(took);
                *last = Some(Instant::now());
            }
            (Deadline::Paced { pace, .. }, Err(Error::Timeout { waited, .. })) => pace.ran_out(*waited),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kolo_schedule::Rank;

    fn ago(seconds: u64) -> Option<Instant> {
        Instant::now().checked_sub(Duration::from_secs(seconds))
    }

    #[test]
    fn follows_the_longest_collective_above_a_floor_unless_fixed() {
        let mut deadline = Deadline::new(None);
        assert_eq!(deadline.limit(), LEAST);
        deadline.over(ago(30), &Ok(()));
        deadline.over(ago(1), &Ok(()));
        assert!(deadline.limit() >= Duration::from_secs(600));
        let mut fixed = Deadline::new(Some(Duration::from_secs(5)));
        fixed.follow(Arc::new(Pace::new(None)));
        fixed.over(ago(30), &Ok(()));
        assert_eq!(fixed.limit(), Duration::from_secs(5));
    }

    #[test]
    fn an_elastic_jobs_deadline_is_long_until_its_pace_is_known() {
        let pace = Arc::new(Pace::new(None));
        let mut deadline = Deadline::new(None);
        deadline.follow(pace.clone());
        deadline.over(ago(1), &Ok(()));
        assert_eq!(deadline.limit(), LEAST);
        (0..4).for_each(|_| pace.step_done());
        let short = deadline.limit();
        assert!(short < LEAST, "{short:?}");
        let waited = Duration::from_secs(100);
        deadline.over(None, &Err(Error::Timeout { rank: Rank(1), during: "a test".into(), waited }));
        assert_eq!(deadline.limit(), 2 * waited);
    }
}
