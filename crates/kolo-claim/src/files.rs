//! The files of the claims, and their exclusive creation.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use kolo_durable::{create_folder, sync_folder};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};

use crate::claim::{Candidate, Claim};
use crate::error::Error;
use crate::exclusive::create_exclusively;
use crate::owner::{Liveness, Owner};

/// Name of the folder of claims, in the claimed folder.
const CLAIMS: &str = ".claims";
/// Suffix of a claim whose owner has given the folder back.
const ENDED: &str = ".ended";
/// Number of times that a list of the files may be out of date when the files are read.
const TRIES: usize = 100;

/// The files of the claims to one folder, of which there is usually one.
#[derive(Clone, Debug)]
pub struct ClaimFiles {
    folder: PathBuf,
    claims: PathBuf,
}

/// The newest claim to a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its term.
    pub term: u64,
    /// The claim; `None` if it is damaged, or half written on a file system without hard links.
    pub claim: Option<Claim>,
    /// True if its owner has given the folder back.
    pub has_ended: bool,
    /// Time of its last renewal, by the file system's clock.
    pub renewed: SystemTime,
}

impl Standing {
    /// Time since the last renewal.
    pub(crate) fn age(&self, now: SystemTime) -> Duration {
        now.duration_since(self.renewed).unwrap_or_default()
    }
}

impl ClaimFiles {
    /// Returns the claim files of a folder.
    pub fn of(folder: &Path) -> ClaimFiles {
        ClaimFiles { folder: folder.to_owned(), claims: folder.join(CLAIMS) }
    }

    /// The claimed folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Creates the folder of claims, but not the claimed folder: if that is gone, it may come back.
    ///
    /// # Errors
    ///
    /// The folder is gone, or cannot be written to.
    pub fn open(&self) -> Result<(), Error> {
        match create_folder(&self.claims) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(e) if e.kind() == ErrorKind::NotFound => Err(self.gone()),
            Err(e) => Err(Error::file(&self.claims, e)),
        }
    }

    /// Returns the newest claim, if there is one.
    ///
    /// # Errors
    ///
    /// The files cannot be read.
    pub fn newest(&self) -> Result<Option<Standing>, Error> {
        self.newest_before(u64::MAX)
    }

    /// Returns the claim whose owner may write, or might have written. It is the newest one, unless its
    /// claimant died before it removed an earlier claim. Such a claimant has written nothing, and the owner
    /// of the earlier claim goes on. A claimant that cannot be checked counts as dead after `lease`.
    ///
    /// # Errors
    ///
    /// The files cannot be read.
    pub fn in_force(&self, lease: Duration) -> Result<Option<Standing>, Error> {
        let Some(mut standing) = self.newest()? else { return Ok(None) };
        while let Some(earlier) = self.newest_before(standing.term)? {
            let claimant = standing.claim.as_ref().map(|claim| &claim.owner);
            let has_died = match claimant.map_or(Liveness::Unknown, Owner::liveness) {
                Liveness::Dead => true,
                Liveness::Alive => false,
                Liveness::Unknown => standing.age(self.now()?) >= lease,
            };
            if standing.has_ended || !has_died {
                break;
            }
            standing = earlier;
        }
        Ok(Some(standing))
    }

    fn newest_before(&self, term: u64) -> Result<Option<Standing>, Error> {
        for _ in 0..TRIES {
            let earlier = self.terms()?.into_iter().filter(|(earlier, _)| *earlier < term);
            let Some((term, has_ended)) = earlier.max() else { return Ok(None) };
            let path = self.path(term, has_ended);
            // Opening the file before reading its time makes NFS ask the server.
            let read = kolo_durable::open(&path).and_then(|file| {
                let renewed = file.metadata()?.modified()?;
                Ok((renewed, std::io::read_to_string(file)))
            });
            match read {
                Ok((renewed, text)) => {
                    let claim = text.ok().and_then(|text| serde_json::from_str(&text).ok());
                    return Ok(Some(Standing { term, claim, has_ended, renewed }));
                }
                // A later claim has just removed it.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(Error::file(&path, e)),
            }
        }
        Err(Error::TermsTaken { folder: self.folder.clone() })
    }

    /// Creates a claim, durably. Returns false if there is another claim with its term or a later one: of
    /// all callers with the same term one succeeds.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn create(&self, claim: &Claim) -> Result<bool, Error> {
        let path = self.path(claim.term, false);
        match create_exclusively(&path, &text(claim)) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(e) if e.kind() == ErrorKind::NotFound => return Err(self.gone()),
            Err(e) => return Err(Error::file(&path, e)),
        }
        // A caller with an old list may get a term whose claim has been removed since.
        let newest = self.terms()?.into_iter().map(|(term, _)| term).max();
        let is_newest = newest.is_none_or(|newest| newest <= claim.term);
        if !is_newest {
            fs::remove_file(&path).map_err(|e| Error::file(&path, e))?;
        }
        Ok(is_newest)
    }

    /// Removes all claims before this term, so that their owners notice.
    ///
    /// # Errors
    ///
    /// A claim cannot be removed.
    pub fn remove_before(&self, term: u64) -> Result<(), Error> {
        for (earlier, has_ended) in self.terms()?.into_iter().filter(|(earlier, _)| *earlier < term) {
            let path = self.path(earlier, has_ended);
            match fs::remove_file(&path) {
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(Error::file(&path, e)),
                _ => {}
            }
        }
        sync_folder(&self.claims).map_err(|e| Error::file(&self.claims, e))
    }

    /// Returns true if this claim still stands.
    /// Fails if the file exists but cannot be read.
    pub(crate) fn stands(&self, claim: &Claim) -> Result<bool, Error> {
        let path = self.path(claim.term, false);
        match kolo_durable::read(&path) {
            Ok(found) => Ok(found == text(claim)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(Error::file(&path, e)),
        }
    }

    /// Renews a claim, which shows that its owner lives, by the file system's clock.
    pub(crate) fn renew(&self, claim: &Claim) {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        // The next check notices if the claim is gone.
        let _ = utimensat(CWD, self.path(claim.term, false), &times, AtFlags::empty());
    }

    /// Marks a claim as ended: its owner does not write any more.
    pub(crate) fn end(&self, claim: &Claim) {
        // If a later claim has removed it, there is nothing to mark.
        if self.stands(claim).is_ok_and(|stands| stands) {
            let _ = fs::rename(self.path(claim.term, false), self.path(claim.term, true));
        }
    }

    /// Returns the time by the file system's clock, which on a shared file system is the same for all hosts.
    pub(crate) fn now(&self) -> Result<SystemTime, Error> {
        let path = self.claims.join(format!(".now-{}", Candidate::new_id()));
        let made = File::create_new(&path).and_then(|file| file.metadata()?.modified());
        let _ = fs::remove_file(&path);
        made.map_err(|e| Error::file(&path, e))
    }

    pub(crate) fn gone(&self) -> Error {
        Error::Gone { folder: self.folder.clone() }
    }

    fn terms(&self) -> Result<Vec<(u64, bool)>, Error> {
        let entries = match fs::read_dir(&self.claims) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|e| Error::file(&self.claims, e))?,
        };
        let mut terms = Vec::new();
        for entry in entries {
            let name = entry.map_err(|e| Error::file(&self.claims, e))?.file_name();
            let name = name.to_string_lossy();
            let (number, has_ended) = match name.strip_suffix(ENDED) {
                Some(number) => (number, true),
                None => (&*name, false),
            };
            terms.extend(number.parse().ok().map(|term: u64| (term, has_ended)));
        }
        Ok(terms)
    }

    fn path(&self, term: u64, has_ended: bool) -> PathBuf {
        let ended = if has_ended { ENDED } else { "" };
        self.claims.join(format!("{term:08}{ended}"))
    }
}

fn text(claim: &Claim) -> Vec<u8> {
    // Serializing numbers and strings cannot fail.
    let mut text = serde_json::to_vec_pretty(claim).unwrap_or_default();
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::exclusive::create_new;

    fn files() -> (tempfile::TempDir, ClaimFiles) {
        let folder = tempfile::tempdir().unwrap();
        let files = ClaimFiles::of(folder.path());
        files.open().unwrap();
        (folder, files)
    }

    #[test]
    fn of_many_that_claim_a_term_one_gets_it() {
        let (_folder, files) = files();
        for term in 1..=20 {
            let (winners, start) = (AtomicUsize::new(0), Barrier::new(8));
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        let claim = Candidate::alone().claim(term);
                        start.wait();
                        if files.create(&claim).unwrap() {
                            winners.fetch_add(1, Ordering::Relaxed);
                            assert_eq!(files.newest().unwrap().unwrap().claim, Some(claim));
                        }
                    });
                }
            });
            assert_eq!(winners.into_inner(), 1, "term {term}");
        }
        files.remove_before(20).unwrap();
        assert_eq!(fs::read_dir(&files.claims).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn a_claimant_with_an_old_list_gets_no_term_that_others_have_passed() {
        let (_folder, files) = files();
        assert!(files.create(&Candidate::alone().claim(2)).unwrap());
        assert!(files.create(&Candidate::alone().claim(3)).unwrap());
        files.remove_before(3).unwrap();
        assert!(!files.create(&Candidate::alone().claim(2)).unwrap());
        assert_eq!(files.terms().unwrap(), [(3, false)]);
    }

    #[test]
    fn without_hard_links_a_term_is_given_once_as_well() {
        let (_folder, files) = files();
        let (first, second) = (Candidate::alone().claim(1), Candidate::alone().claim(1));
        let path = files.path(1, false);
        assert!(create_new(&path, &text(&first)).unwrap() && !create_new(&path, &text(&second)).unwrap());
        assert_eq!(files.newest().unwrap().unwrap().claim, Some(first));
    }

    #[test]
    fn an_unreadable_claim_counts() {
        let (_folder, files) = files();
        fs::write(files.path(4, false), "{").unwrap();
        let newest = files.newest().unwrap().unwrap();
        assert_eq!((newest.term, newest.claim), (4, None));
        assert!(!files.create(&Candidate::alone().claim(4)).unwrap());
    }

    #[test]
    fn a_folder_that_is_gone_is_not_made() {
        let (folder, _) = files();
        let gone = folder.path().join("gone");
        let files = ClaimFiles::of(&gone);
        assert!(matches!(files.open(), Err(Error::Gone { .. })));
        assert!(files.newest().unwrap().is_none());
        assert!(matches!(files.create(&Candidate::alone().claim(1)), Err(Error::Gone { .. })));
        assert!(!gone.exists());
    }
}
