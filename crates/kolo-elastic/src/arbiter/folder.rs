//! Generations recorded as files of a folder that all nodes share.
//!
//! | file | content |
//! |---|---|
//! | `job-<id>/begun` | exists once the job has begun: a launcher that sees it shares the folder |
//! | `job-<id>/generation-<number>.json` | the record of a generation |
//!
//! Of several launchers that add the record of the same generation, one succeeds ([`create_exclusively`]).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kolo_claim::create_exclusively;
use kolo_durable::{create_folders, sync_folder};
use kolo_rendezvous::Error;

use super::claim::Record;
use super::recorded::Records;
use super::rule::Rule;

/// Time within which a file of another host becomes visible: NFS clients cache folders.
const SEEN_WITHIN: Duration = Duration::from_secs(10);
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

struct Folder {
    path: PathBuf,
}

pub(super) fn read(path: &str) -> Result<Rule, Error> {
    let path = PathBuf::from(path);
    if !path.is_absolute() {
        let why = "give an absolute path that leads to the same folder on all nodes";
        return Err(Error::system(format!("folder:{}", path.display()), why));
    }
    Ok(Rule::Recorded(Arc::new(Folder { path })))
}

impl Folder {
    fn job(&self, job: u64) -> PathBuf {
        self.path.join(format!("job-{job:016x}"))
    }

    fn fails(path: &Path, what: &str, cause: impl std::fmt::Display) -> String {
        format!("{what} {}: {cause}", path.display())
    }
}

impl Records for Folder {
    fn place(&self) -> String {
        format!("folder:{}", self.path.display())
    }

    fn begin(&self, job: u64) -> Result<(), String> {
        let (folder, begun) = (self.job(job), self.job(job).join("begun"));
        create_folders(&folder).map_err(|cause| Self::fails(&folder, "cannot make", cause))?;
        let made = kolo_durable::write(&begun, b"").and_then(|()| sync_folder(&folder));
        made.map_err(|cause| Self::fails(&begun, "cannot write", cause))
    }

    fn knows(&self, job: u64) -> Result<Result<(), String>, String> {
        let (folder, until) = (self.job(job), Instant::now() + SEEN_WITHIN);
        while Instant::now() < until {
            // Listing a folder makes NFS clients ask their server.
            let is_begun =
                |file: std::io::Result<fs::DirEntry>| file.is_ok_and(|file| file.file_name() == "begun");
            if fs::read_dir(&folder).is_ok_and(|mut files| files.any(is_begun)) {
                return Ok(Ok(()));
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
        let shared = "give a folder on a file system that all nodes share";
        let begun = folder.join("begun");
        Ok(Err(format!("{} is not there, where the job has begun: {shared}", begun.display())))
    }

    fn last(&self, job: u64) -> Result<Option<Record>, String> {
        let folder = self.job(job);
        let list = fs::read_dir(&folder).map_err(|cause| Self::fails(&folder, "cannot read", cause))?;
        let number =
            |name: &str| name.strip_prefix("generation-")?.strip_suffix(".json")?.parse::<u64>().ok();
        let mut last = None;
        for file in list {
            let file = file.map_err(|cause| Self::fails(&folder, "cannot read", cause))?;
            last = last.max(file.file_name().to_str().and_then(number));
        }
        let Some(number) = last else { return Ok(None) };
        let path = folder.join(record_name(number));
        let text = kolo_durable::read(&path).map_err(|cause| Self::fails(&path, "cannot read", cause))?;
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|cause| Self::fails(&path, "cannot understand", cause))
    }

    /// Ignores `_after`: the record's number says which record it follows.
    fn add(&self, job: u64, _after: Option<&Record>, record: &Record) -> Result<bool, String> {
        let path = self.job(job).join(record_name(record.generation));
        let text = serde_json::to_vec(record).map_err(|cause| Self::fails(&path, "cannot write", cause))?;
        create_exclusively(&path, &text).map_err(|cause| Self::fails(&path, "cannot make", cause))
    }
}

fn record_name(number: u64) -> String {
    format!("generation-{number}.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_many_concurrent_additions_succeeds() {
        let place = tempfile::tempdir().unwrap();
        let folder = || Folder { path: place.path().to_owned() };
        folder().begin(7).unwrap();
        folder().knows(7).unwrap().unwrap();
        assert_eq!(folder().last(7), Ok(None));
        for generation in 1..=20 {
            let record = |leader| Record {
                generation,
                leader,
                place: format!("host{leader}"),
                members: vec!["node0/0.0".into()],
            };
            let added = std::thread::scope(|scope| {
                let tries = (0..8).map(|leader| scope.spawn(move || (leader, record(leader))));
                let adding: Vec<_> = tries
                    .map(|made| made.join().unwrap())
                    .map(|(leader, record)| {
                        let folder = folder();
                        (leader, scope.spawn(move || folder.add(7, None, &record).unwrap()))
                    })
                    .collect();
                let added = adding
                    .into_iter()
                    .filter_map(|(leader, adding)| adding.join().unwrap().then_some(leader));
                added.collect::<Vec<u64>>()
            });
            let [winner] = added[..] else { panic!("{added:?} have all got generation {generation}") };
            assert_eq!(folder().last(7), Ok(Some(record(winner))));
        }
        let files = fs::read_dir(folder().job(7)).unwrap().count();
        assert_eq!(files, 21, "the records and `begun`, and nothing else");
    }
}
