//! A leader's claims: it asks the arbiter for each generation, in a thread where that may take its time, and
//! asks again while the answer may still change.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::arbiter::{Arbiter, Claim, Verdict};

/// The time between two claims where the first was not granted.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// The leader waits so long for an answer each time it looks. Most answers come at once.
const ANSWER: Duration = Duration::from_millis(10);

/// What has come of a claim so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// It is granted: the generation has this number.
    Granted(u64),
    /// There is no answer yet, or another one may follow.
    Waits,
    /// The job goes on without this leader, or not at all. The text is the reason, as a sentence.
    Refused(String),
}

/// The claims of one leader.
pub(crate) struct Claims {
    arbiter: Arbiter,
    /// A claim may be refused for so long before the leader gives up.
    patience: Duration,
    asked: Option<(Claim, Receiver<Result<Verdict, String>>)>,
    ask_again: Option<Instant>,
    /// Since when claims are refused, and why; the reason is `None` when the user has been told.
    refused: Option<(Instant, Option<String>)>,
}

impl Claims {
    /// No claims yet.
    pub(crate) fn new(arbiter: Arbiter, patience: Duration) -> Claims {
        Claims { arbiter, patience, asked: None, ask_again: None, refused: None }
    }

    /// Claims a generation, or looks what has come of it. Another claim than the last one is made anew, even
    /// where the last one was granted: then nobody has been told of that generation.
    pub(crate) fn claim(&mut self, claim: &Claim, now: Instant) -> Claimed {
        let (asked, answered) = match self.asked.take() {
            Some((asked, answer)) => (asked, answer),
            None if self.ask_again.is_some_and(|then| now < then) => return Claimed::Waits,
            None => match self.ask(claim.clone()) {
                Ok(answer) => (claim.clone(), answer),
                Err(cause) => return self.not_yet(format!("no thread can be started: {cause}"), now),
            },
        };
        let answer = match answered.recv_timeout(ANSWER) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                self.asked = Some((asked, answered));
                return Claimed::Waits;
            }
            Err(RecvTimeoutError::Disconnected) => Err("a thread has ended".into()),
        };
        match answer {
            Ok(Verdict::Granted(_)) if asked != *claim => Claimed::Waits,
            Ok(Verdict::Granted(number)) => {
                (self.refused, self.ask_again) = (None, None);
                Claimed::Granted(number)
            }
            Ok(Verdict::Superseded(reason)) => Claimed::Refused(reason),
            Ok(Verdict::NotYet(reason)) | Err(reason) => self.not_yet(reason, now),
        }
    }

    /// Why claims are refused for now, if that is news.
    pub(crate) fn news(&mut self) -> Option<String> {
        let reason = self.refused.as_mut()?.1.take()?;
        Some(format!("no generation may follow yet: {reason}; waiting for up to {:?}", self.patience))
    }

    fn not_yet(&mut self, reason: String, now: Instant) -> Claimed {
        let (since, _) = self.refused.get_or_insert_with(|| (now, Some(reason.clone())));
        if now.saturating_duration_since(*since) >= self.patience {
            return Claimed::Refused(reason);
        }
        self.ask_again = Some(now + ASK_AGAIN);
        Claimed::Waits
    }

    fn ask(&self, claim: Claim) -> std::io::Result<Receiver<Result<Verdict, String>>> {
        let (answer, answered) = mpsc::channel();
        let arbiter = self.arbiter.clone();
        // Nobody waits for the answer any more when the leader has ended.
        let work = move || drop(answer.send(arbiter.claim(&claim)));
        if self.arbiter.is_immediate() {
            work();
        } else {
            std::thread::Builder::new().name("kolo-claim".into()).spawn(work)?;
        }
        Ok(answered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbiter::Predecessor;
    use crate::generation::GenerationId;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A claim of `a` and `here`, where a, b and c were together before.
    fn claim(here: &[&str]) -> Claim {
        let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let id = GenerationId { number: 1, leader: 1 };
        let predecessors = vec![Predecessor { id, members: Some(names(&["a", "b", "c"])) }];
        let (members, left, told) = (names(here), Default::default(), Default::default());
        Claim { job: 1, leader: 1, place: "here".into(), newest: 1, members, left, told, predecessors }
    }

    #[test]
    fn a_refused_claim_is_made_again_until_patience_ends() {
        let now = Instant::now();
        let mut claims = Claims::new(Arbiter::parse("majority").unwrap(), PATIENCE);
        assert_eq!(claims.claim(&claim(&["a"]), now), Claimed::Waits);
        let news = claims.news().unwrap();
        assert!(news.contains("1 of the 3 workers of generation 1") && claims.news().is_none(), "{news}");
        assert_eq!(claims.claim(&claim(&["a", "b"]), now), Claimed::Waits, "it is not asked all the time");
        let mut goes_on = Claims::new(Arbiter::parse("majority").unwrap(), PATIENCE);
        assert_eq!(goes_on.claim(&claim(&["a"]), now), Claimed::Waits);
        assert_eq!(goes_on.claim(&claim(&["a", "b"]), now + ASK_AGAIN), Claimed::Granted(2));
        let Claimed::Refused(reason) = claims.claim(&claim(&["a"]), now + PATIENCE) else {
            panic!("it waits for ever")
        };
        assert!(reason.contains("1 of the 3 workers"), "{reason}");
    }

    #[test]
    fn what_was_granted_to_others_than_now_wait_is_not_used() {
        let mut claims = Claims::new(Arbiter::sole(), PATIENCE);
        let now = Instant::now();
        let (_keep, never) = mpsc::channel();
        claims.asked = Some((claim(&["a", "b"]), never));
        assert_eq!(claims.claim(&claim(&["a"]), now), Claimed::Waits, "the first answer is waited for");
        let (answer, answered) = mpsc::channel();
        answer.send(Ok(Verdict::Granted(2))).unwrap();
        claims.asked = Some((claim(&["a", "b"]), answered));
        assert_eq!(claims.claim(&claim(&["a"]), now), Claimed::Waits);
        assert_eq!(claims.claim(&claim(&["a"]), now), Claimed::Granted(2));
    }
}
