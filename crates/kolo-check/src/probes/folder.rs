//! The run folder: write access, free space, write rate, visibility on all ranks, and another writer.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kolo_claim::{Candidate, ClaimFiles, Decision, Timing, decide};
use kolo_comm::{Error, Group, Rank};
use serde::{Deserialize, Serialize};

/// State of the run folder on a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FolderFacts {
    /// True if it exists.
    pub exists: bool,
    /// Its disk, or the reason why rank 0 cannot write there; `None` on the other ranks.
    pub disk: Option<Result<Disk, String>>,
    /// True if this rank can read a file that rank 0 has written; `None` if rank 0 could not write.
    pub is_shared: Option<bool>,
    /// Another process that writes the folder, if there is one.
    pub writer: Option<String>,
}

/// The disk under a folder.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Disk {
    /// Free space for this user, in bytes.
    pub free: u64,
    /// Bytes per second written and synced.
    pub write_rate: f64,
}

/// Parameters of the probe.
#[derive(Clone, Copy, Debug)]
pub struct FolderProbe<'a> {
    /// Run folder, which need not exist; spelled alike on all ranks.
    pub folder: &'a Path,
    /// True if the run would take the folder over from another writer.
    pub take_over: bool,
}

/// Maximum bytes of the trial file, and the divisor of the free space that limits it as well.
const TRIAL: (u64, u64) = (16 << 20, 8);
/// Time after which a file must be visible on other hosts.
const VISIBLE_WITHIN: Duration = Duration::from_secs(2);
/// Interval between two attempts to read the file.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A file of rank 0, removed on drop.
struct Token(PathBuf);

impl Drop for Token {
    fn drop(&mut self) {
        // If the disk has failed in the meantime, the file stays.
        let _ = fs::remove_file(&self.0);
    }
}

impl FolderProbe<'_> {
    /// Probes the folder. A collective: rank 0 writes a file into the folder, or above it if it does not
    /// exist, and the other ranks look for the file. Rank 0 removes it afterwards. Fails if a collective
    /// fails (naming the rank).
    pub fn look(&self, group: &Group) -> Result<FolderFacts, Error> {
        let exists = self.folder.exists();
        let (mut disk, mut token) = (None, None);
        if group.rank() == Rank(0) {
            let written = self.write();
            disk = Some(written.as_ref().map(|(disk, _)| *disk).map_err(ToString::to_string));
            token = written.ok().map(|(_, token)| token);
        }
        let path = group.broadcast_value(token.as_ref().map(|token| token.0.clone()), Rank(0))?;
        let is_shared = path.map(|path| token.is_some() || sees(&path));
        // The file stays until all ranks have looked for it.
        group.barrier()?;
        drop(token);
        Ok(FolderFacts { exists, disk, is_shared, writer: self.writer() })
    }

    /// Writes a file with an unguessable name, and measures the disk.
    fn write(&self) -> Result<(Disk, Token), std::io::Error> {
        let place = nearest(self.folder);
        let id = Candidate::new_id();
        let token = Token(place.join(format!(".kolo-check-{id}")));
        let about = |error: std::io::Error| {
            std::io::Error::new(error.kind(), format!("{}: {error}", place.display()))
        };
        let free = rustix::fs::statvfs(&place).map(|disk| disk.f_bavail * disk.f_frsize);
        let free = free.map_err(|error| about(error.into()))?;
        let length = TRIAL.0.min(free / TRIAL.1).max(1);
        // Pseudorandom bytes: a file system that compresses would seem too fast.
        let bytes: Vec<u8> =
            (0..length).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
        let mut file = File::options().write(true).create_new(true).open(&token.0).map_err(about)?;
        let began = Instant::now();
        file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(about)?;
        Ok((Disk { free, write_rate: length as f64 / began.elapsed().as_secs_f64().max(1e-9) }, token))
    }

    /// Returns the other writer of the folder, by the rules by which the run would claim it.
    fn writer(&self) -> Option<String> {
        let newest = ClaimFiles::of(self.folder).in_force(Timing::default().lease).ok()??;
        let owner = &newest.claim.as_ref()?.owner;
        let candidate = Candidate { take_over: self.take_over, ..Candidate::alone() };
        let (decision, _) = decide(Some(&newest), &candidate, owner.liveness());
        (decision == Decision::Refuse).then(|| newest.claim.as_ref().map(ToString::to_string))?
    }
}

/// Returns true if this rank can read a file of another rank.
fn sees(path: &Path) -> bool {
    let until = Instant::now() + VISIBLE_WITHIN;
    loop {
        // The file is opened each time: over NFS only opening asks the server.
        if kolo_durable::open(path).is_ok_and(|mut file| file.read(&mut [0]).is_ok()) {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the folder or its nearest existing ancestor.
fn nearest(folder: &Path) -> PathBuf {
    let above = folder.ancestors().find(|above| above.is_dir());
    above.filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ranks_see_a_folder_of_their_host_and_nothing_is_left() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("runs/0001");
        let all = kolo_comm::threads::spawn(3, |group| {
            FolderProbe { folder: &folder, take_over: false }.look(&group).unwrap()
        })
        .unwrap();
        let disk = all[0].disk.as_ref().unwrap().as_ref().unwrap();
        assert!(disk.free > 0 && disk.write_rate > 0.0, "{disk:?}");
        assert!(all.iter().all(|facts| facts.is_shared == Some(true) && !facts.exists), "{all:?}");
        assert!(all[1].disk.is_none());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_write_error_names_the_place() {
        let folder = Path::new("/proc/kolo/run");
        let facts = kolo_comm::threads::spawn(2, |group| {
            FolderProbe { folder, take_over: false }.look(&group).unwrap()
        });
        let facts = facts.unwrap();
        let error = facts[0].disk.clone().unwrap().unwrap_err();
        assert!(error.starts_with("/proc: "), "{error}");
        assert_eq!(facts[1].is_shared, None);
    }

    #[test]
    fn a_process_that_writes_the_folder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let writer = |take_over| FolderProbe { folder: folder.path(), take_over }.writer();
        assert_eq!(writer(false), None);
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let held = kolo_claim::take(folder.path(), &Candidate::alone(), |_| {}).unwrap();
        assert_eq!(writer(false), None, "this very process");
        held.hand_on();
        // Make it the claim of a live process: the id and start time of the other one.
        let claims = fs::read_dir(folder.path().join(".claims")).unwrap();
        let path = claims.map(|entry| entry.unwrap().path()).next().unwrap();
        let stat = fs::read_to_string(format!("/proc/{}/stat", other.id())).unwrap();
        let started: u64 =
            stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap().parse().unwrap();
        let mut claim: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        (claim["owner"]["pid"], claim["owner"]["started"]) = (other.id().into(), started.into());
        fs::write(&path, claim.to_string()).unwrap();
        assert!(writer(false).is_some_and(|writer| writer.contains(&format!("process {}", other.id()))));
        assert_eq!(writer(true), None);
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(writer(false), None, "it is dead");
    }
}
