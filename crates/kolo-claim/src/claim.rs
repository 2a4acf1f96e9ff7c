//! A claim as it is written, and the facts about a candidate for one.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::owner::Owner;

/// The right to write a folder: the owner, its job, and the time of the claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Number of the claim, from 1; a later claim has a larger one.
    pub term: u64,
    /// Identifier of the claim, unique among all claims.
    pub id: String,
    /// The job for which the owner writes.
    pub job: String,
    /// The generation of that job.
    pub generation: u64,
    /// The process that writes.
    pub owner: Owner,
    /// Time of the claim, in seconds since 1970 by its host's clock.
    pub since_unix: u64,
}

/// A process that wants to write a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Id of its future claim ([`Candidate::new_id`]).
    pub id: String,
    /// Its job. Two jobs never have the same one.
    pub job: String,
    /// The generation of that job for which it would write.
    pub generation: u64,
    /// Ids of the job's earlier claims that this part of the job knows. After a network partition, one
    /// part does not know the other part's later claims.
    pub known: Vec<String>,
    /// True if its job has held the folder already. Then an unknown claim is a later one, and the
    /// folder's content is ahead of the job's own state.
    pub has_held: bool,
    /// Takes the folder from any owner.
    pub take_over: bool,
}

impl Candidate {
    /// Creates a candidate of a new job with one generation.
    pub fn alone() -> Candidate {
        let id = Candidate::new_id();
        let (job, known) = (id.clone(), Vec::new());
        Candidate { id, job, generation: 1, known, has_held: false, take_over: false }
    }

    /// Creates an id that no other claim has, on any host and in any process.
    pub fn new_id() -> String {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let Owner { host, pid, .. } = Owner::this_process();
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        format!("{host}-{pid}-{time:x}-{}", COUNT.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn claim(&self, term: u64) -> Claim {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (id, job) = (self.id.clone(), self.job.clone());
        let owner = Owner::this_process();
        Claim { term, id, job, generation: self.generation, owner, since_unix: now.as_secs() }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} since {} (generation {})", self.owner, utc(self.since_unix), self.generation)
    }
}

/// Formats a time for people. The date follows `civil_from_days` of Howard Hinnant, "chrono-compatible
/// low-level date algorithms": eras of 400 years begin on the first of March.
fn utc(unix: u64) -> String {
    let (days, seconds) = (unix / 86_400 + 719_468, unix % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (unix, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(unix), text);
        }
    }

    #[test]
    fn no_two_ids_are_the_same() {
        assert_ne!(Candidate::new_id(), Candidate::new_id());
    }
}
