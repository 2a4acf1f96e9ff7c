//! Obstacles that keep a launcher out of its job, temporary or final, and messages to the user about them.

use std::time::{Duration, Instant};

use kolo_rendezvous::{Error, WaitNotice};

/// An obstacle to joining the job, or to beginning it.
pub(super) enum Setback {
    /// No event elsewhere can remove it.
    Final(Error),
    /// The job refuses the launcher, perhaps temporarily: a lost one has its place, or the arbiter is away.
    Refused(Error),
    /// A connection has broken. The job may begin while others come and go.
    Broken(Error),
}

impl From<Error> for Setback {
    fn from(error: Error) -> Setback {
        // Another round would end in the same way.
        if error.is_final() { Setback::Final(error) } else { Setback::Broken(error) }
    }
}

pub(super) struct Setbacks {
    /// Places at which the launcher looks.
    masters: String,
    /// True if the job begins elsewhere, with node 0.
    begins_elsewhere: bool,
    /// Time after which a refusal is final.
    patience: Duration,
    /// Time after which the search ends.
    limit: Duration,
    /// The current refusal, and the time of its first occurrence.
    refused: Option<(Error, Instant)>,
    broken: Option<Error>,
    notice: WaitNotice,
}

impl Setbacks {
    /// A search that begins now, at these places, and ends after `limit`.
    pub(super) fn new(
        masters: String,
        begins_elsewhere: bool,
        patience: Duration,
        limit: Duration,
    ) -> Setbacks {
        let notice = WaitNotice::new();
        Setbacks { masters, begins_elsewhere, patience, limit, refused: None, broken: None, notice }
    }

    /// Records a setback at `now`. Returns a message for the user, if one is due.
    /// Fails if the setback is final, or if the job has refused the launcher for too long.
    pub(super) fn record(&mut self, setback: Setback, now: Instant) -> Result<Option<String>, Error> {
        let error = match setback {
            Setback::Final(error) => return Err(error),
            Setback::Broken(error) => {
                (self.refused, self.broken) = (None, Some(error));
                return Ok(self.reminder());
            }
            Setback::Refused(error) => error,
        };
        let known = self.refused.as_ref().map(|(known, since)| (known.to_string(), *since));
        let since = known.as_ref().map_or(now, |(_, since)| *since);
        if now.saturating_duration_since(since) >= self.patience {
            return Err(error);
        }
        let text = error.to_string();
        self.refused = Some((error, since));
        if known.is_some_and(|(known, _)| known == text) {
            return Ok(None);
        }
        Ok(Some(format!("{text}; trying again for up to {:?}", self.patience)))
    }

    /// Records that no launcher of the job answers. Returns a message for the user, if one is due.
    pub(super) fn no_answer(&mut self) -> Option<String> {
        self.refused = None;
        self.reminder()
    }

    /// Returns the reason why the search has not found the job, when its time is over.
    pub(super) fn last(self) -> Error {
        match self.refused {
            Some((refusal, _)) => refusal,
            None => Error::JobNotFound { masters: self.masters, cause: self.broken.map(Box::new) },
        }
    }

    fn reminder(&mut self) -> Option<String> {
        let waited = self.notice.due()?;
        let what = match (&self.broken, self.begins_elsewhere) {
            (Some(error), _) => error.to_string(),
            (None, true) => "none answers, and node 0 begins the job there".into(),
            (None, false) => "none answers".into(),
        };
        let Setbacks { masters, limit, .. } = self;
        Some(format!(
            "looking for the job's other launchers at {masters} since {waited:?}, for up to {limit:?}: {what}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn refusal(reason: &str) -> Error {
        Error::LauncherRefused { reason: reason.into() }
    }

    fn setbacks() -> Setbacks {
        Setbacks::new("host:1".into(), true, PATIENCE, Duration::from_secs(300))
    }

    #[test]
    fn a_refusal_is_reported_at_once_and_final_after_a_while() {
        let (mut setbacks, begin) = (setbacks(), Instant::now());
        let mut record = |reason: &str, seconds| {
            let now = begin + Duration::from_secs(seconds);
            setbacks.record(Setback::Refused(refusal(reason)), now).map_err(|error| error.to_string())
        };
        let message = record("is full", 0).unwrap().unwrap();
        assert!(message.starts_with("the job is full; trying again for up to 30s"), "{message}");
        assert_eq!(record("is full", 10), Ok(None), "the user knows");
        assert!(record("has a node 1", 29).unwrap().is_some(), "another reason");
        assert_eq!(record("has a node 1", 30), Err("the job has a node 1".into()));
    }

    #[test]
    fn a_past_refusal_is_forgotten_and_a_lasting_one_is_the_reason() {
        let (mut setbacks, begin) = (setbacks(), Instant::now());
        setbacks.record(Setback::Refused(refusal("is full")), begin).unwrap();
        assert_eq!(setbacks.no_answer(), None);
        let message = setbacks.record(Setback::Refused(refusal("is full")), begin + PATIENCE).unwrap();
        assert!(message.is_some(), "it begins anew");
        assert_eq!(setbacks.last().to_string(), "the job is full");
        let lost = Error::system("the connection has ended", "it is closed");
        let mut setbacks = self::setbacks();
        assert!(setbacks.record(lost.into(), begin).is_ok(), "others may come");
        let error = setbacks.last().to_string();
        assert!(error.contains("host:1") && error.contains("it is closed"), "{error}");
        assert!(self::setbacks().record(refusal("is another one").into(), begin).is_err());
    }
}
