//! A leader's claims on generations: one at a time, and repeated while a refusal may change.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::effect::{Effect, Effects};
use super::event::ClaimAnswer;
use crate::arbiter::Claim;

/// Time between two claims if the first was not granted.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// The arbiter has granted the generation this number. The driver has started its store, or failed to.
    Granted { number: u64, store: Result<SocketAddr, String> },
    /// There is no answer yet, or another one may follow.
    Waits,
    /// The job goes on without this leader, or not at all. The text is the reason, as a sentence.
    Refused(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Claims {
    /// Time that claims may be refused before the leader gives up.
    patience: Duration,
    /// The last claim, with its answer once there is one.
    pending: Option<(Claim, Option<ClaimAnswer>)>,
    retry_at: Option<Instant>,
    /// Start of the refusals and their reason, which is `None` once the user has been informed.
    refused: Option<(Instant, Option<String>)>,
}

impl Claims {
    pub(crate) fn new(patience: Duration) -> Claims {
        Claims { patience, pending: None, retry_at: None, refused: None }
    }

    /// Claims a generation, or checks the answer to the claim. A claim that differs from the last one is
    /// made anew even if the last one was granted: then no member has learned of that generation.
    pub(crate) fn claim(&mut self, claim: &Claim, now: Instant, out: &mut Effects) -> Claimed {
        let Some((pending, answer)) = self.pending.take() else {
            if self.retry_at.is_none_or(|then| now >= then) {
                self.pending = Some((claim.clone(), None));
                out.push(Effect::Claim(claim.clone()));
            }
            return Claimed::Waits;
        };
        match answer {
            None => {
                self.pending = Some((pending, None));
                Claimed::Waits
            }
            Some(ClaimAnswer::Granted { .. }) if pending != *claim => Claimed::Waits,
            Some(ClaimAnswer::Granted { number, store }) => {
                (self.refused, self.retry_at) = (None, None);
                Claimed::Granted { number, store }
            }
            Some(ClaimAnswer::Superseded(reason)) => Claimed::Refused(reason),
            Some(ClaimAnswer::NotYet(reason)) => self.not_yet(reason, now),
        }
    }

    pub(crate) fn answered(&mut self, answer: ClaimAnswer) {
        if let Some((_, waits)) = &mut self.pending {
            *waits = Some(answer);
        }
    }

    /// Returns the reason for which claims are refused, unless this method has returned it before.
    pub(crate) fn take_refusal(&mut self) -> Option<String> {
        let reason = self.refused.as_mut()?.1.take()?;
        Some(format!("no generation may follow yet: {reason}; waiting for up to {:?}", self.patience))
    }

    fn not_yet(&mut self, reason: String, now: Instant) -> Claimed {
        let (since, _) = self.refused.get_or_insert_with(|| (now, Some(reason.clone())));
        if now.saturating_duration_since(*since) >= self.patience {
            return Claimed::Refused(reason);
        }
        self.retry_at = Some(now + RETRY_INTERVAL);
        Claimed::Waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn claim(members: &[&str]) -> Claim {
        let members = members.iter().map(|name| name.to_string()).collect();
        let (left, announced, abandoned) = Default::default();
        Claim {
            job: 1,
            leader: 1,
            place: "here".into(),
            newest: 1,
            members,
            left,
            abandoned,
            announced,
            predecessors: Vec::new(),
        }
    }

    /// Returns the state of the claim, and true if the leader has asked the arbiter.
    fn claims(claims: &mut Claims, members: &[&str], now: Instant) -> (Claimed, bool) {
        let mut out = Effects::default();
        let claimed = claims.claim(&claim(members), now, &mut out);
        let asks = out.0 == [Effect::Claim(claim(members))];
        assert!(asks || out.0.is_empty(), "{out:?}");
        (claimed, asks)
    }

    #[test]
    fn a_refused_claim_is_repeated_until_patience_ends() {
        let (mut leader, now) = (Claims::new(PATIENCE), Instant::now());
        let not_yet = || ClaimAnswer::NotYet("1 of 3 is here".into());
        assert_eq!(claims(&mut leader, &["a"], now), (Claimed::Waits, true));
        assert_eq!(claims(&mut leader, &["a"], now), (Claimed::Waits, false), "there is no answer yet");
        leader.answered(not_yet());
        assert_eq!(claims(&mut leader, &["a"], now), (Claimed::Waits, false));
        let refusal = leader.take_refusal().unwrap();
        assert!(refusal.contains("1 of 3 is here") && leader.take_refusal().is_none(), "{refusal}");
        assert_eq!(
            claims(&mut leader, &["a", "b"], now),
            (Claimed::Waits, false),
            "it is not asked all the time"
        );
        let mut goes_on = leader.clone();
        assert_eq!(claims(&mut goes_on, &["a", "b"], now + RETRY_INTERVAL), (Claimed::Waits, true));
        let store = Ok(SocketAddr::from(([127, 0, 0, 1], 1)));
        goes_on.answered(ClaimAnswer::Granted { number: 2, store: store.clone() });
        let granted = Claimed::Granted { number: 2, store };
        assert_eq!(claims(&mut goes_on, &["a", "b"], now + RETRY_INTERVAL), (granted, false));
        assert_eq!(claims(&mut leader, &["a"], now + PATIENCE), (Claimed::Waits, true));
        leader.answered(not_yet());
        let refused = Claimed::Refused("1 of 3 is here".into());
        assert_eq!(
            claims(&mut leader, &["a"], now + PATIENCE),
            (refused, false),
            "it does not wait for ever"
        );
    }

    #[test]
    fn a_grant_for_other_members_is_not_used() {
        let (mut leader, now) = (Claims::new(PATIENCE), Instant::now());
        let granted = |number| ClaimAnswer::Granted { number, store: Err("none".into()) };
        assert_eq!(claims(&mut leader, &["a", "b"], now), (Claimed::Waits, true));
        assert_eq!(
            claims(&mut leader, &["a"], now),
            (Claimed::Waits, false),
            "the first answer is waited for"
        );
        leader.answered(granted(2));
        assert_eq!(claims(&mut leader, &["a"], now), (Claimed::Waits, false));
        assert_eq!(claims(&mut leader, &["a"], now), (Claimed::Waits, true));
        leader.answered(granted(2));
        let granted = Claimed::Granted { number: 2, store: Err("none".into()) };
        assert_eq!(claims(&mut leader, &["a"], now), (granted, false));
    }
}
