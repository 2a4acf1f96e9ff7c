//! The rules: decide who gets a folder that another process may be writing.

use crate::claim::Candidate;
use crate::files::Standing;
use crate::owner::{Liveness, Owner};

/// Decision about a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The candidate may claim the next term.
    Take,
    /// The owner's process cannot be checked: the candidate watches if it renews its claim.
    Watch,
    /// The owner writes, and the candidate does not.
    Refuse,
    /// Another part of the candidate's own job has written since the job was split: the candidate's state
    /// is outdated, even if the other part is dead.
    RefusePart,
    /// Another job has taken the folder from the candidate's job: the candidate's state is outdated as well.
    RefuseFenced,
}

/// Decides about a candidate, and gives the reason. `liveness` is that of the owner of `newest`.
pub fn decide(
    newest: Option<&Standing>,
    candidate: &Candidate,
    liveness: Liveness,
) -> (Decision, &'static str) {
    let Some(standing) = newest else { return (Decision::Take, "nobody has claimed the folder") };
    let claim = standing.claim.as_ref();
    let is_same_job = claim.is_some_and(|claim| claim.job == candidate.job);
    let is_known = claim.is_some_and(|claim| claim.id == candidate.id || candidate.known.contains(&claim.id));
    if is_same_job && !is_known {
        return (Decision::RefusePart, "another part of the job has claimed the folder");
    }
    if candidate.has_held && !is_known {
        return (Decision::RefuseFenced, "another job has claimed the folder since this one held it");
    }
    if candidate.take_over {
        return (Decision::Take, "the user says so");
    }
    let Some(claim) = claim else { return (Decision::Watch, "the claim cannot be read") };
    if standing.has_ended {
        return (Decision::Take, "the owner has given the folder back");
    }
    if claim.owner == Owner::this_process() {
        return (Decision::Take, "this process has it already");
    }
    if is_same_job && candidate.generation > claim.generation {
        return (Decision::Take, "a later generation of the job follows an earlier one");
    }
    match liveness {
        Liveness::Dead => (Decision::Take, "the owner is dead"),
        Liveness::Alive => (Decision::Refuse, "the owner lives"),
        Liveness::Unknown => (Decision::Watch, "the owner cannot be asked"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::Decision::*;
    use super::*;

    fn candidate(job: &str, generation: u64, known: &[&str]) -> Candidate {
        let known = known.iter().map(|id| (*id).to_owned()).collect();
        let (id, job) = ("new".into(), job.into());
        Candidate { id, job, generation, known, has_held: false, take_over: false }
    }

    /// A claim of generation 2 of job `a`, of another process.
    fn standing() -> Standing {
        let mut claim = candidate("a", 2, &[]).claim(7);
        claim.id = "old".into();
        claim.owner.pid += 1;
        Standing { term: 7, claim: Some(claim), has_ended: false, renewed: SystemTime::now() }
    }

    #[test]
    fn of_one_job_a_later_generation_follows_a_living_earlier_one() {
        let decide = |candidate: &Candidate, liveness| decide(Some(&standing()), candidate, liveness).0;
        for liveness in [Liveness::Alive, Liveness::Dead, Liveness::Unknown] {
            assert_eq!(decide(&candidate("a", 3, &["old"]), liveness), Take);
        }
        // After its rank 0 has died, the survivors of a generation save their state.
        for (liveness, decision) in
            [(Liveness::Alive, Refuse), (Liveness::Dead, Take), (Liveness::Unknown, Watch)]
        {
            assert_eq!(decide(&candidate("a", 2, &["old"]), liveness), decision);
            assert_eq!(decide(&candidate("a", 1, &["old"]), liveness), decision);
        }
    }

    #[test]
    fn the_part_of_a_job_that_does_not_know_the_claim_never_gets_the_folder() {
        for generation in 1..9 {
            let (part, mut standing) = (candidate("a", generation, &["older"]), standing());
            for liveness in [Liveness::Alive, Liveness::Dead, Liveness::Unknown] {
                assert_eq!(decide(Some(&standing), &part, liveness).0, RefusePart);
            }
            standing.has_ended = true;
            assert_eq!(decide(Some(&standing), &part, Liveness::Dead).0, RefusePart);
        }
    }

    #[test]
    fn another_job_gets_it_from_the_dead_and_from_those_that_gave_it_back() {
        let (other, mut standing) = (candidate("b", 9, &[]), standing());
        for (liveness, decision) in
            [(Liveness::Alive, Refuse), (Liveness::Dead, Take), (Liveness::Unknown, Watch)]
        {
            assert_eq!(decide(Some(&standing), &other, liveness).0, decision);
        }
        standing.has_ended = true;
        assert_eq!(decide(Some(&standing), &other, Liveness::Alive).0, Take);
        standing.claim = None;
        assert_eq!(decide(Some(&standing), &other, Liveness::Unknown).0, Watch);
        assert_eq!(decide(None, &other, Liveness::Unknown).0, Take);
    }

    #[test]
    fn a_job_that_was_fenced_off_does_not_come_back_when_the_other_one_has_ended() {
        let mut standing = standing();
        standing.has_ended = true;
        for take_over in [false, true] {
            let fenced = Candidate { has_held: true, take_over, ..candidate("b", 9, &["older"]) };
            for liveness in [Liveness::Alive, Liveness::Dead, Liveness::Unknown] {
                assert_eq!(decide(Some(&standing), &fenced, liveness).0, RefuseFenced);
            }
        }
        let own = Candidate { has_held: true, ..candidate("a", 3, &["old"]) };
        assert_eq!(decide(Some(&standing), &own, Liveness::Dead).0, Take);
    }

    #[test]
    fn the_user_decides_and_so_does_the_owner_itself() {
        let forced = Candidate { take_over: true, ..candidate("b", 1, &[]) };
        assert_eq!(decide(Some(&standing()), &forced, Liveness::Alive).0, Take);
        let mut own = standing();
        own.claim.as_mut().unwrap().owner = Owner::this_process();
        assert_eq!(decide(Some(&own), &candidate("b", 1, &[]), Liveness::Alive).0, Take);
    }
}
