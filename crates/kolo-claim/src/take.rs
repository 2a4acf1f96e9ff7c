//! Claiming a folder: finds its owner, checks if that lives, and claims the folder if the rules allow it.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use crate::claim::{Candidate, Claim};
use crate::decide::{Decision, decide};
use crate::error::{Error, RefusalKind};
use crate::files::{ClaimFiles, Standing};
use crate::held::Held;
use crate::owner::Liveness;

/// Number of times that another candidate may be faster.
const TRIES: usize = 100;

/// The times by which owners on other hosts are judged.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Time between two renewals of a claim.
    pub beat: Duration,
    /// Age of a claim, by the file system's clock, at which an owner that cannot be checked counts as dead.
    pub lease: Duration,
    /// Time between two looks at the claim of such an owner.
    pub look: Duration,
}

impl Default for Timing {
    /// Renewals every five seconds, and a lease of half a minute.
    fn default() -> Self {
        let look = Duration::from_millis(500);
        Timing { beat: Duration::from_secs(5), lease: Duration::from_secs(30), look }
    }
}

/// Claims a folder. If the owner is on another host, calls `waits` and then waits until the owner's lease
/// is over or the owner is seen to live.
///
/// # Errors
///
/// [`Error::Refused`]: another process writes the folder. Otherwise it is gone or cannot be written to.
pub fn take(folder: &Path, candidate: &Candidate, waits: impl FnMut(&Standing)) -> Result<Held, Error> {
    take_with(folder, candidate, Timing::default(), waits)
}

/// Claims a folder as [`take`] does, with other times. Fails as [`take`] does.
pub fn take_with(
    folder: &Path,
    candidate: &Candidate,
    timing: Timing,
    mut waits: impl FnMut(&Standing),
) -> Result<Held, Error> {
    let files = ClaimFiles::of(folder);
    files.open()?;
    for _ in 0..TRIES {
        let claim: Claim = candidate.claim(next_term(&files, candidate, timing, &mut waits)?);
        // The claim may be there although the disk has failed.
        if files.create(&claim).inspect_err(|_| files.end(&claim))? {
            let held = Held::new(files.clone(), claim, timing.beat)?;
            // From here on the previous owner knows. Nothing has been written before.
            files.remove_before(held.claim().term)?;
            return Ok(held);
        }
    }
    Err(Error::TermsTaken { folder: folder.to_owned() })
}

/// Waits as [`take`] does until the folder could be claimed, but does not claim it. Fails as [`take`] does.
pub fn wait_until_free(
    folder: &Path,
    candidate: &Candidate,
    mut waits: impl FnMut(&Standing),
) -> Result<(), Error> {
    let files = ClaimFiles::of(folder);
    // Without any claim there is no need to create the folder of claims.
    if files.newest()?.is_none() {
        return Ok(());
    }
    next_term(&files, candidate, Timing::default(), &mut waits).map(drop)
}

/// Returns true if a living process writes the folder, or one that cannot be checked and may live.
///
/// # Errors
///
/// The claims cannot be read.
pub fn is_written(folder: &Path) -> Result<bool, Error> {
    let (files, lease) = (ClaimFiles::of(folder), Timing::default().lease);
    let Some(standing) = files.in_force(lease)?.filter(|standing| !standing.has_ended) else {
        return Ok(false);
    };
    match standing.claim.as_ref().map_or(Liveness::Unknown, |claim| claim.owner.liveness()) {
        Liveness::Alive => Ok(true),
        Liveness::Dead => Ok(false),
        Liveness::Unknown => Ok(standing.age(files.now()?) < lease),
    }
}

/// Returns the term that the candidate may claim.
fn next_term(
    files: &ClaimFiles,
    candidate: &Candidate,
    timing: Timing,
    waits: &mut dyn FnMut(&Standing),
) -> Result<u64, Error> {
    let mut watched: Option<Standing> = None;
    loop {
        let Some(term) = files.newest()?.map(|newest| newest.term) else { return Ok(1) };
        let newest = files.in_force(timing.lease)?;
        let owner = newest.as_ref().and_then(|standing| standing.claim.as_ref()).map(|claim| &claim.owner);
        let liveness = owner.map_or(Liveness::Unknown, |owner| owner.liveness());
        let (decision, _) = decide(newest.as_ref(), candidate, liveness);
        let Some(standing) = newest else { return Ok(1) };
        let refused = |kind, standing: Standing| Err(Error::refused(kind, files.folder(), standing.claim));
        match decision {
            // The newest claimant's term is used up even if it died before it had the folder.
            Decision::Take => return Ok(term.max(standing.term) + 1),
            Decision::Refuse => return refused(RefusalKind::Taken, standing),
            Decision::RefusePart => return refused(RefusalKind::OtherPart, standing),
            Decision::RefuseFenced => return refused(RefusalKind::Fenced, standing),
            Decision::Watch if standing.age(files.now()?) >= timing.lease => {
                return Ok(term.max(standing.term) + 1);
            }
            Decision::Watch => {}
        }
        match watched.take().filter(|seen| seen.term == standing.term) {
            Some(seen) if seen.renewed != standing.renewed => return refused(RefusalKind::Taken, standing),
            Some(_) => {}
            None => waits(&standing),
        }
        watched = Some(standing);
        sleep(timing.look);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use kolo_durable::Operation;
    use kolo_durable::recording::{Recording, mistakes};

    use super::*;

    const TIMING: Timing = Timing {
        beat: Duration::from_millis(5),
        lease: Duration::from_millis(200),
        look: Duration::from_millis(10),
    };

    fn taken(folder: &Path, candidate: &Candidate) -> Result<Held, Error> {
        take_with(folder, candidate, TIMING, |_| {})
    }

    /// Creates the claim of a process on another host, which cannot be checked.
    fn claim_elsewhere(folder: &Path) -> (ClaimFiles, Claim) {
        let files = ClaimFiles::of(folder);
        files.open().unwrap();
        let mut claim = Candidate::alone().claim(1);
        let owner =
            serde_json::json!({ "host": "far-away", "pid": 7, "started": 1, "place": ["boot", "pids"] });
        claim.owner = serde_json::from_value(owner).unwrap();
        assert!(files.create(&claim).unwrap());
        (files, claim)
    }

    #[test]
    fn a_later_claim_fences_an_earlier_one_off() {
        let folder = tempfile::tempdir().unwrap();
        let first = taken(folder.path(), &Candidate::alone()).unwrap();
        first.check().unwrap();
        let second = taken(folder.path(), &Candidate::alone()).unwrap();
        assert_eq!((first.claim().term, second.claim().term), (1, 2));
        second.check().unwrap();
        let error = first.check().unwrap_err();
        let Error::Refused(refusal) = error else { panic!("{error}") };
        assert_eq!((refusal.kind, refusal.by.as_ref()), (RefusalKind::Fenced, Some(second.claim())));
        // The fenced claim changes nothing any more, not even when it is dropped.
        drop(first);
        second.check().unwrap();
        assert!(is_written(folder.path()).unwrap());
        drop(second);
        assert!(!is_written(folder.path()).unwrap());
    }

    /// Creates the claim of a process that has ended since.
    fn claim_of_dead(folder: &Path, candidate: &Candidate, term: u64) -> Claim {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let claim = candidate.claim(term);
        let mut value = serde_json::to_value(&claim).unwrap();
        value["owner"]["pid"] = child.id().into();
        let claim: Claim = serde_json::from_value(value).unwrap();
        assert!(ClaimFiles::of(folder).create(&claim).unwrap());
        claim
    }

    /// Another job forces its claim to the folder of a living owner, and dies at once.
    #[test]
    fn a_claimant_that_dies_before_it_fences_off_the_owner_has_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut owner = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let files = ClaimFiles::of(folder.path());
        files.open().unwrap();
        let job = Candidate::alone();
        let mut value = serde_json::to_value(job.claim(1)).unwrap();
        value["owner"] = serde_json::to_value(crate::Owner::of_test(owner.id())).unwrap();
        let first: Claim = serde_json::from_value(value).unwrap();
        assert!(files.create(&first).unwrap());
        claim_of_dead(folder.path(), &Candidate::alone(), 2);
        claim_of_dead(folder.path(), &Candidate::alone(), 3);
        let Err(Error::Refused(refusal)) = taken(folder.path(), &Candidate::alone()) else {
            panic!("the folder of an owner that lives is taken")
        };
        assert_eq!((refusal.kind, refusal.by.as_ref()), (RefusalKind::Taken, Some(&first)));
        // The owner's own job goes on with the folder, which no other job has held.
        let known = vec![first.id.clone()];
        let next = Candidate { id: Candidate::new_id(), generation: 2, known, has_held: true, ..job };
        assert_eq!(taken(folder.path(), &next).unwrap().claim().term, 4);
        owner.kill().unwrap();
        owner.wait().unwrap();
    }

    /// A claimant that has fenced the owner off may have written.
    #[test]
    fn a_claimant_that_dies_with_the_folder_is_its_last_owner() {
        let folder = tempfile::tempdir().unwrap();
        ClaimFiles::of(folder.path()).open().unwrap();
        let other = claim_of_dead(folder.path(), &Candidate::alone(), 2);
        let fenced = Candidate { has_held: true, ..Candidate::alone() };
        let Err(Error::Refused(refusal)) = taken(folder.path(), &fenced) else {
            panic!("an old state is written")
        };
        assert_eq!((refusal.kind, refusal.by), (RefusalKind::Fenced, Some(other)));
    }

    #[test]
    fn a_returned_folder_is_free_and_a_handed_on_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        drop(taken(folder.path(), &Candidate::alone()).unwrap());
        let newest = |folder: &Path| ClaimFiles::of(folder).newest().unwrap().unwrap();
        assert!(newest(folder.path()).has_ended);
        taken(folder.path(), &Candidate::alone()).unwrap().hand_on();
        let handed_on = newest(folder.path());
        assert_eq!((handed_on.term, handed_on.has_ended), (2, false));
    }

    /// A folder in place of an earlier claim cannot be removed as a file.
    #[test]
    fn a_claim_that_fails_half_way_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let files = ClaimFiles::of(folder.path());
        files.open().unwrap();
        fs::create_dir(folder.path().join(".claims/00000001")).unwrap();
        let forced = Candidate { take_over: true, ..Candidate::alone() };
        assert!(taken(folder.path(), &forced).is_err());
        let newest = files.newest().unwrap().unwrap();
        assert_eq!((newest.term, newest.has_ended), (2, true));
    }

    #[test]
    fn a_folder_that_goes_and_comes_is_still_held() {
        let place = tempfile::tempdir().unwrap();
        let (folder, away) = (place.path().join("run"), place.path().join("away"));
        fs::create_dir(&folder).unwrap();
        let held = taken(&folder, &Candidate::alone()).unwrap();
        fs::rename(&folder, &away).unwrap();
        assert!(matches!(held.check(), Err(Error::Gone { .. })));
        assert!(matches!(taken(&folder, &Candidate::alone()), Err(Error::Gone { .. })));
        assert!(!folder.exists(), "nobody makes it anew");
        fs::rename(&away, &folder).unwrap();
        held.check().unwrap();
    }

    #[test]
    fn an_owner_elsewhere_that_renews_its_claim_is_alive() {
        let folder = tempfile::tempdir().unwrap();
        let (files, claim) = claim_elsewhere(folder.path());
        let mut calls = 0;
        let renew = |_: &Standing| {
            calls += 1;
            // The next look comes later, whatever the resolution of the file system's clock.
            sleep(Duration::from_millis(50));
            files.renew(&claim);
        };
        // A lease that outlasts any test.
        let timing = Timing { lease: Duration::from_secs(3600), ..TIMING };
        let error = take_with(folder.path(), &Candidate::alone(), timing, renew).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("is written by process 7 on far-away since 20"), "{message}");
        assert_eq!(calls, 1);
    }

    #[test]
    fn an_owner_elsewhere_that_is_silent_has_no_lease() {
        let folder = tempfile::tempdir().unwrap();
        let (files, claim) = claim_elsewhere(folder.path());
        let held = taken(folder.path(), &Candidate::alone()).unwrap();
        assert_eq!(held.claim().term, 2);
        assert!(!files.stands(&claim).unwrap());
    }

    #[test]
    fn the_user_can_take_the_folder_from_any_owner() {
        let folder = tempfile::tempdir().unwrap();
        claim_elsewhere(folder.path());
        let timing = Timing { lease: Duration::from_secs(3600), ..TIMING };
        let forced = Candidate { take_over: true, ..Candidate::alone() };
        take_with(folder.path(), &forced, timing, |_| {}).unwrap().check().unwrap();
    }

    #[test]
    fn the_owner_keeps_its_claim_young() {
        let folder = tempfile::tempdir().unwrap();
        let held = taken(folder.path(), &Candidate::alone()).unwrap();
        let renewed = || ClaimFiles::of(folder.path()).newest().unwrap().unwrap().renewed;
        let first = renewed();
        while renewed() == first {
            sleep(Duration::from_millis(1));
        }
        held.check().unwrap();
    }

    /// After any power failure, a claim and the folder of claims are whole or absent.
    #[test]
    fn claims_are_written_durably() {
        let folder = tempfile::tempdir().unwrap();
        let recording = Recording::of(folder.path());
        let held = taken(folder.path(), &Candidate::alone()).unwrap();
        let forced = Candidate { take_over: true, ..Candidate::alone() };
        let _second = taken(folder.path(), &forced).unwrap();
        drop(held);
        let operations = recording.operations();
        assert!(operations.iter().any(|operation| matches!(operation, Operation::Link(..))));
        let found = mistakes(&operations, |_| true);
        assert!(found.is_empty(), "{found:?}");
    }
}
