//! Claims to the run folder that belong to this part of the job.
//!
//! Rank 0 claims the folder for every generation. All ranks know the id of its claim before it makes the
//! claim, so the next rank 0, if it was in that group, succeeds it at once. A part of the job that was cut
//! off does not know the other part's claims, whatever its generation numbers, and is refused.

use std::path::Path;
use std::time::{Duration, Instant};

use kolo_claim::{Candidate, Claim, ClaimFiles, Standing};
use kolo_comm::{Error, Group};

/// Time after which a claim must be visible on other hosts, and the time between two looks.
const VISIBLE_WITHIN: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Number of the last claims to keep. All but the last one matter only for generations that ended before
/// their rank 0 had claimed the folder.
const KNOWN: usize = 32;

/// A rank's knowledge of its job's claims.
pub(crate) struct Lineage {
    job: String,
    known: Vec<String>,
    /// True if one of the claims has been made.
    pub(crate) has_held: bool,
}

impl Lineage {
    pub(crate) fn new(job: String) -> Self {
        Lineage { job, known: Vec::new(), has_held: false }
    }

    /// Sends the id of rank 0's next claim to all ranks, and returns for each the candidate that it would be
    /// as rank 0. After the return on one rank, all ranks know the id. A collective.
    pub(crate) fn announce(&mut self, group: &Group, generation: u64) -> Result<Candidate, Error> {
        let id = Candidate::new_id();
        let all: Vec<(Vec<String>, bool, String)> =
            group.all_gather_value(&(&self.known, self.has_held, &id))?;
        self.has_held |= all.iter().any(|(_, has_held, _)| *has_held);
        let next = all.first().map(|(_, _, id)| id.clone());
        for known in all.into_iter().flat_map(|(known, _, _)| known).chain(next) {
            if !self.known.contains(&known) {
                self.known.push(known);
            }
        }
        let surplus = self.known.len().saturating_sub(KNOWN);
        self.known.drain(..surplus);
        group.barrier()?;
        let (job, known) = (self.job.clone(), self.known.clone());
        Ok(Candidate { id, job, generation, known, has_held: self.has_held, take_over: false })
    }

    /// Returns true if the claim to a folder is one of this job, as it is wherever rank 0's folder is shared.
    pub(crate) fn is_claimed(&self, folder: &Path) -> bool {
        let is_own = |claim: &Claim| claim.job == self.job || self.known.contains(&claim.id);
        let until = Instant::now() + VISIBLE_WITHIN;
        loop {
            match ClaimFiles::of(folder).newest() {
                Ok(Some(Standing { claim, .. })) if claim.as_ref().is_none_or(is_own) => return true,
                _ if Instant::now() >= until => return false,
                _ => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kolo_comm::threads;

    use super::*;

    #[test]
    fn all_know_the_next_claim_and_newcomers_those_before() {
        let ranks = threads::spawn(3, |group| {
            let mut lineage = Lineage::new("job".into());
            if group.rank().0 == 1 {
                lineage.known = vec!["earlier".into()];
                lineage.has_held = true;
            }
            let candidate = lineage.announce(&group, 2).unwrap();
            (candidate.id, candidate.known, candidate.has_held)
        });
        let ranks = ranks.unwrap();
        for (_, known, has_held) in &ranks {
            assert!(*known == ["earlier".to_owned(), ranks[0].0.clone()] && *has_held);
        }
    }

    #[test]
    fn the_last_claims_are_known_after_any_number_of_generations() {
        let mut lineage = Lineage::new("job".into());
        let group = Group::alone();
        let last = (1..100).map(|generation| lineage.announce(&group, generation).unwrap()).last().unwrap();
        assert!(last.known.len() == KNOWN && last.known.last() == Some(&last.id), "{last:?}");
    }
}
