//! A claim as it is written, and what somebody who wants one has to say.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::owner::Owner;

/// Who writes a folder, since when, and for which job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// A later claim has a larger one. From 1.
    pub term: u64,
    /// Tells the claim from all others.
    pub id: String,
    /// The job for which its owner writes.
    pub job: String,
    /// Which generation of that job.
    pub generation: u64,
    /// The process that writes.
    pub owner: Owner,
    /// Since when, in seconds since 1970 by its host's clock.
    pub since_unix: u64,
}

/// Somebody who wants to write a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The id that its claim will have ([`Candidate::new_id`]).
    pub id: String,
    /// Its job. Two jobs never have the same one.
    pub job: String,
    /// The generation of that job for which it would write.
    pub generation: u64,
    /// Ids of the earlier claims of its job, as far as its members know them. Where a job is cut in two, one
    /// part does not know the claims that the other has made since.
    pub known: Vec<String>,
    /// Whether its job has held the folder already: then a claim that it does not know was made since, and
    /// what stands in the folder is further than the job's own state.
    pub has_held: bool,
    /// Takes the folder from whoever has it.
    pub take_over: bool,
}

impl Candidate {
    /// The only generation of a job of its own.
    pub fn alone() -> Candidate {
        let id = Candidate::new_id();
        let (job, known) = (id.clone(), Vec::new());
        Candidate { id, job, generation: 1, known, has_held: false, take_over: false }
    }

    /// An id that no other claim has, of whatever host and process.
    pub fn new_id() -> String {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let Owner { host, pid, .. } = Owner::this_process();
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        format!("{host}-{pid}-{time:x}-{}", COUNT.fetch_add(1, Ordering::Relaxed))
    }

    /// Its claim, if it gets this term.
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

/// A time as people read it. The date is counted as by Howard Hinnant, "chrono-compatible low-level date
/// algorithms", `civil_from_days`: in eras of 400 years that begin on the first of March.
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
        for (unix, words) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(unix), words);
        }
    }

    #[test]
    fn no_two_ids_are_the_same() {
        assert_ne!(Candidate::new_id(), Candidate::new_id());
    }
}
