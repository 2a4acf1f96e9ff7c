//! A worker's part of the protocol: it arrives, receives assignments, and enters later generations only.

use kolo_rendezvous::Error;
use std::time::Duration;

use crate::generation::History;
use crate::worker_protocol::{Arrival, Assignment, Reply};

/// A worker's knowledge of its job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Membership {
    arrivals: u64,
    has_state: bool,
    /// True for a summation server, which never holds the state.
    server: bool,
    /// Number that distinguishes this process from others of its name.
    incarnation: u64,
    history: History,
}

/// The worker's next step after a reply.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The worker forms the group of this generation, which it has entered.
    Enter(Assignment),
    /// The worker arrives again, for this reason.
    ArriveAgain(String),
    /// The worker forms the job's last group, which only saves the state, for the reason in the error.
    EnterLast(Assignment, Error),
    /// The worker cannot go on.
    End(Error),
}

impl Membership {
    /// A worker that has been in no generation.
    pub(crate) fn new(incarnation: u64, server: bool) -> Membership {
        Membership { arrivals: 0, has_state: false, server, incarnation, history: History::default() }
    }

    /// Builds the arrival of a worker that has left its generation for `reason`, or was in none.
    /// `rejoin_timeout` is the time that other members may take to arrive, if the worker has measured the
    /// length of their steps.
    pub(crate) fn arrive(&mut self, reason: Option<String>, rejoin_timeout: Option<Duration>) -> Arrival {
        self.arrivals += 1;
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Arrival {
            number: self.arrivals,
            reason,
            rejoin_timeout_ms: rejoin_timeout.map(milliseconds),
            has_state: self.has_state,
            server: self.server,
            incarnation: self.incarnation,
            history: self.history.clone(),
        }
    }

    /// Handles the reply to the last arrival.
    pub(crate) fn replied(&mut self, reply: Reply) -> Outcome {
        match reply {
            Reply::Assigned(assignment) => match self.history.enter(assignment.generation) {
                true => Outcome::Enter(assignment),
                false => Outcome::ArriveAgain("an older generation was assigned".into()),
            },
            Reply::StateLost => Outcome::End(Error::Orphaned),
            Reply::Superseded { reason } => Outcome::End(Error::Superseded { reason }),
            Reply::Failed { reason } => {
                Outcome::End(Error::system("the coordinator can form no generation", reason))
            }
            Reply::TooFew { present, min, waited_ms, last } => {
                let waited = Duration::from_millis(waited_ms);
                let too_few = Error::TooFew { present, min, waited, is_last_group: last.is_some() };
                match last {
                    Some(assignment) => Outcome::EnterLast(assignment, too_few),
                    None => Outcome::End(too_few),
                }
            }
        }
    }

    /// Records that the worker has formed the group of the generation that it entered last.
    pub(crate) fn formed(&mut self) {
        self.history.formed();
    }

    /// Records that the worker holds the state of the job from now on.
    pub(crate) fn set_has_state(&mut self) {
        self.has_state = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generation::GenerationId;

    #[test]
    fn a_worker_enters_later_generations_only() {
        let assigned = |number, leader| {
            let generation = GenerationId { number, leader };
            let store = ([127, 0, 0, 1], 1).into();
            let reason = String::new();
            Reply::Assigned(Assignment { generation, rank: 0, world_size: 1, store, reason })
        };
        let mut worker = Membership::new(7, false);
        assert_eq!(worker.arrive(None, None).number, 1);
        assert!(matches!(worker.replied(assigned(2, 9)), Outcome::Enter(_)));
        worker.formed();
        worker.set_has_state();
        let again = worker.arrive(Some("rank 1 died".into()), Some(Duration::from_secs(2)));
        assert_eq!((again.number, again.rejoin_timeout_ms, again.has_state), (2, Some(2000), true));
        assert_eq!(again.history.formed, Some(GenerationId { number: 2, leader: 9 }));
        assert!(matches!(worker.replied(assigned(2, 8)), Outcome::ArriveAgain(_)));
        assert!(matches!(worker.replied(Reply::StateLost), Outcome::End(Error::Orphaned)));
    }
}
