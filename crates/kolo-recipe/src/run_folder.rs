//! The run folder: a run's results, in files of common formats.
//!
//! `config.toml` (all that is needed to repeat the run), `metrics.csv` (a row for each epoch), `steps.jsonl`
//! (a line for each step), `buckets.csv`, `checkpoints/`, `summary.json`. Only rank 0 writes.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use kolo_claim::Candidate;
use kolo_ddp::checkpoint::{self, Found};
use kolo_durable::{create_folder, create_folders, sync_folder};
use kolo_run_folder::SUMMARY;
use parking_lot::Mutex;

use crate::error::Error;
use crate::recipe::Recipe;
use crate::run_claim::{RunClaim, from_claim, tell_waiting};

const CONFIG: &str = "config.toml";
/// File with the id of the job that made the folder, whose workers may each be the first to come.
const JOB: &str = ".job";
const CLAIMS: &str = ".claims";
/// Entries that a run folder may have before the first checkpoint.
const BEFORE_A_CHECKPOINT: [&str; 13] = [
    CONFIG,
    JOB,
    CLAIMS,
    "checkpoints",
    "best",
    "preprocessing.json",
    "tensorboard",
    "tuning.jsonl",
    kolo_run_folder::STEPS,
    kolo_run_folder::METRICS,
    kolo_run_folder::BUCKETS,
    kolo_run_folder::RANKS,
    kolo_run_folder::GENERATIONS,
];
/// Time that a replacement of a dead worker waits for a folder that is away.
const AWAY: Duration = Duration::from_secs(60);
/// Most tries for a number that no other run takes first.
const TRIES: usize = 100;

/// The folder of one run.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// Right to write the folder, on rank 0 during a training.
    claim: Option<Arc<RunClaim>>,
    lines: Arc<Lines>,
}

/// Files with lines that are not durable yet.
#[derive(Debug, Default)]
struct Lines {
    unsynced: Mutex<BTreeSet<PathBuf>>,
    /// Held during a sync: another thread must not take the files for synced before they are.
    syncing: Mutex<()>,
}

impl RunFolder {
    /// Returns an existing folder.
    pub fn at(path: PathBuf) -> Self {
        RunFolder { path, claim: None, lines: Arc::default() }
    }

    /// Returns true if the folder is that of a run.
    pub fn is_run(&self) -> bool {
        self.path.join(CONFIG).exists()
    }

    /// Returns the run folder around this folder of checkpoints, checkpoint, or file of one.
    pub fn around(&self) -> Option<PathBuf> {
        let path = fs::canonicalize(&self.path).ok()?;
        let found = path.ancestors().skip(1).take(3).find(|above| above.join(CONFIG).exists())?;
        // In the user's spelling, if possible.
        let steps = path.strip_prefix(found).ok()?.components().count();
        let spelled = self.path.ancestors().nth(steps).filter(|above| !above.as_os_str().is_empty());
        Some(spelled.map_or(found.to_owned(), Path::to_owned))
    }

    /// Returns true if the run is complete: it has its summary, and the checkpoint of its last step, which a
    /// full disk may have prevented.
    pub fn is_complete(&self) -> bool {
        let text = kolo_durable::read_to_string(&self.path.join(SUMMARY)).unwrap_or_default();
        let summary = serde_json::from_str::<serde_json::Value>(&text).unwrap_or_default();
        summary["steps"].as_u64().is_some_and(|steps| self.has_checkpoint(steps))
    }

    /// Returns true if the checkpoint of a step has been written; only a whole one has its name.
    pub fn has_checkpoint(&self, step: u64) -> bool {
        checkpoint::path(&self.checkpoints(), step).exists()
    }

    /// Makes a new folder with the configuration in it.
    pub fn create(path: PathBuf, config: &Recipe) -> Result<Self, Error> {
        if let Some(parent) = path.parent() {
            create_folders(parent).map_err(|e| Error::file(parent, e))?;
        }
        create_folder(&path).map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => RunFolder::at(path.clone()).taken(),
            _ => Error::file(&path, e),
        })?;
        let folder = RunFolder::at(path);
        folder.write(&folder.path.join(CONFIG), config.to_toml()?.as_bytes())?;
        Ok(folder)
    }

    /// Makes or finds the folder of job `job`. It appears with all its initial files at once.
    pub fn claim(path: PathBuf, config: &Recipe, job: &str) -> Result<Self, Error> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        create_folders(parent).map_err(|e| Error::file(parent, e))?;
        let draft = tempfile::tempdir_in(parent).map_err(|e| Error::file(parent, e))?;
        let folder = RunFolder::at(draft.path().to_owned());
        folder.write(&folder.path.join(CONFIG), config.to_toml()?.as_bytes())?;
        folder.write(&folder.path.join(JOB), job.as_bytes())?;
        // Fails for an existing folder that is not empty.
        match kolo_durable::rename(draft.path(), &path) {
            Ok(()) => sync_folder(parent).map_err(|e| Error::file(parent, e))?,
            Err(_) if is_of(&path, job) => {}
            Err(_) if path.exists() => return Err(RunFolder::at(path).taken()),
            Err(e) => return Err(Error::file(&path, e)),
        }
        Ok(RunFolder::at(path))
    }

    /// Like [`Self::claim`], at `runs/<number>-<model>-<data>`.
    pub fn claim_numbered(config: &Recipe, job: &str) -> Result<Self, Error> {
        let runs = Path::new("runs");
        for _ in 0..TRIES {
            if let Some(path) = numbered_of(job) {
                return Ok(RunFolder::at(path));
            }
            let path = Self::next_numbered(config)?;
            // Another worker may have been faster: if it is of this job, the next round finds its folder.
            match Self::claim(path.clone(), config, job) {
                Err(_) if path.exists() => {}
                claimed => return claimed,
            }
        }
        Err(Error::NumbersTaken { runs: runs.to_owned() })
    }

    /// Makes `runs/<number>-<model>-<data>`, with the first free number.
    pub fn create_numbered(config: &Recipe) -> Result<Self, Error> {
        Self::create(Self::next_numbered(config)?, config)
    }

    /// Returns the path that [`Self::create_numbered`] would use, and makes nothing.
    ///
    /// # Errors
    ///
    /// The folder `runs` cannot be read.
    pub fn next_numbered(config: &Recipe) -> Result<PathBuf, Error> {
        let runs = Path::new("runs");
        let number = |name: &str| name.split('-').next().and_then(|number| number.parse::<u32>().ok());
        let entries = match fs::read_dir(runs) {
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            read => Some(read.map_err(|e| Error::file(runs, e))?),
        };
        let taken =
            entries.into_iter().flatten().filter_map(|entry| number(entry.ok()?.file_name().to_str()?));
        let mut next = taken.max().unwrap_or(0) + 1;
        let data = config.data.split(':').next().unwrap_or_default();
        loop {
            let names = [&*config.model, data].into_iter().filter(|name| !name.is_empty());
            let path = runs.join(names.fold(format!("{next:04}"), |path, name| format!("{path}-{name}")));
            // Another run may have taken the number meanwhile.
            if !path.exists() {
                return Ok(path);
            }
            next += 1;
        }
    }

    /// Finds the folder of a job that began before this worker was started. A missing folder is away: this
    /// function waits for it, and does not make it again. `path` is `None` for a numbered folder.
    ///
    /// # Errors
    ///
    /// The folder has not come back within a minute.
    pub fn of_running_job(path: Option<PathBuf>, job: &str) -> Result<Self, Error> {
        Self::wait_for(path, job, AWAY)
    }

    fn wait_for(path: Option<PathBuf>, job: &str, limit: Duration) -> Result<Self, Error> {
        let until = Instant::now() + limit;
        loop {
            let found = match &path {
                Some(path) => Some(path.clone()).filter(|path| path.join(CONFIG).exists()),
                None => numbered_of(job),
            };
            match found {
                Some(path) => return Ok(RunFolder::at(path)),
                None if Instant::now() < until => sleep(Duration::from_millis(50)),
                None => return Err(Error::FolderGone { path: path.unwrap_or("runs".into()) }),
            }
        }
    }

    /// Waits until no process writes to the folder any more, as far as can be known.
    ///
    /// # Errors
    ///
    /// Another process writes it ([`Error::NotTheWriter`]), and `take_over` is false.
    pub fn wait_until_free(&self, take_over: bool) -> Result<(), Error> {
        let candidate = Candidate { take_over, ..Candidate::alone() };
        kolo_claim::wait_until_free(&self.path, &candidate, tell_waiting).map_err(from_claim)
    }

    /// Returns true if another process writes the folder, or may write it.
    pub fn is_written(&self) -> bool {
        kolo_claim::is_written(&self.path).unwrap_or(false)
    }

    /// Returns the same folder with the right to write it.
    pub fn claimed(&self, candidate: Candidate) -> Self {
        let claim = RunClaim::new(&self.path, candidate);
        RunFolder { claim: Some(Arc::new(claim)), ..self.clone() }
    }

    /// Returns the right to write the folder; `None` without [`RunFolder::claimed`].
    pub fn run_claim(&self) -> Option<&Arc<RunClaim>> {
        self.claim.as_ref()
    }

    /// Removes the folder of a run that failed before its first step was recorded, because it would be in the
    /// way of the corrected run. A folder with any other contents stays.
    pub fn discard_unused(&self) {
        let steps = fs::metadata(self.path.join(kolo_run_folder::STEPS));
        if steps.map_or(true, |file| file.len() == 0) {
            self.discard_without_checkpoint();
        }
    }

    /// Removes the folder of a run that failed by wrong input before its first checkpoint. A folder with any
    /// other contents stays.
    pub fn discard_without_checkpoint(&self) {
        if !self.has_no_checkpoint() {
            return;
        }
        let entries: Vec<PathBuf> =
            fs::read_dir(&self.path).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        let config = self.path.join(CONFIG);
        // A failure to remove an entry keeps the folder too.
        for path in entries.into_iter().filter(|path| *path != config) {
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
        if fs::remove_file(config).is_ok() {
            // Fails, as it should, if the folder got a new entry meanwhile.
            let _ = fs::remove_dir(&self.path);
        }
    }

    /// True if the folder holds a run without a checkpoint, and no foreign files.
    fn has_no_checkpoint(&self) -> bool {
        let is_empty_folder =
            |path: &Path| fs::read_dir(path).map_or(true, |mut inside| inside.next().is_none());
        let mut entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let is_known = |name: &str| {
            let draft = name.strip_prefix('.').and_then(|name| name.strip_suffix(".part"));
            BEFORE_A_CHECKPOINT.contains(&draft.unwrap_or(name))
        };
        self.is_run()
            && is_empty_folder(&self.checkpoints())
            && is_empty_folder(&self.best())
            && entries.all(|entry| entry.file_name().to_str().is_some_and(is_known))
    }

    /// Returns true if a process has claimed the folder to write it.
    pub fn is_claimed(&self) -> bool {
        fs::read_dir(self.path.join(CLAIMS)).is_ok_and(|mut claims| claims.next().is_some())
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of the file with the preprocessing of images, so that an export needs no data set.
    pub fn preprocessing(&self) -> PathBuf {
        self.path.join("preprocessing.json")
    }

    /// Path of the folder of checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// Path of the folder of the checkpoint that is best by a metric.
    pub fn best(&self) -> PathBuf {
        self.path.join("best")
    }

    /// Makes the folder of a run, or continues the run in it: `path` must be free, or hold a run with the
    /// same configuration. `job` is the id of a job whose workers come and go, each of which may be the
    /// first.
    ///
    /// # Errors
    ///
    /// The run there has another configuration (the error names the setting), the folder holds something
    /// else, or it cannot be made.
    pub fn create_or_continue(path: PathBuf, config: &Recipe, job: Option<&str>) -> Result<Self, Error> {
        if !path.join(CONFIG).exists() {
            // Fails, as it should, if the folder has files.
            let _ = fs::remove_dir(&path);
            let made = match job {
                Some(job) => Self::claim(path.clone(), config, job),
                None => Self::create(path.clone(), config),
            };
            match made {
                // Another worker of the job may have been faster.
                Err(Error::FolderTaken { .. } | Error::NothingToResume { .. })
                    if path.join(CONFIG).exists() => {}
                Err(Error::FolderTaken { path }) => return Err(Error::NotARun { path }),
                made => return made,
            }
        }
        let folder = RunFolder::at(path);
        match folder.config()?.difference(config)? {
            None => Ok(folder),
            // An earlier try failed: nothing in the folder depends on the other settings.
            Some(_) if !folder.has_checkpoints() && !folder.is_complete() => folder.begin_anew(config),
            Some((setting, there, here)) => {
                Err(Error::OtherRecipe { path: folder.path, setting, there, here })
            }
        }
    }

    /// Takes over the folder of a run without a checkpoint, for one with another configuration.
    /// Fails if that run is still active ([`Error::NotTheWriter`]).
    fn begin_anew(self, config: &Recipe) -> Result<Self, Error> {
        self.wait_until_free(false)?;
        let written = self.write(&self.path.join(CONFIG), config.to_toml()?.as_bytes());
        match written {
            // Another worker of the job may have been faster.
            Err(_) if self.config()?.difference(config)?.is_none() => Ok(self),
            written => written.map(|()| self),
        }
    }

    /// Returns the error of a new run whose folder exists.
    fn taken(self) -> Error {
        match self.is_run() && !self.has_checkpoints() && !self.is_complete() {
            true => Error::NothingToResume { path: self.path },
            false => Error::FolderTaken { path: self.path },
        }
    }

    /// Returns true if the folder has checkpoints to continue from.
    pub fn has_checkpoints(&self) -> bool {
        checkpoint::list(&self.checkpoints()).is_ok_and(|all| !all.is_empty())
    }

    /// Reads the configuration with which the run began.
    ///
    /// # Errors
    ///
    /// There is no such folder, or its `config.toml` cannot be read.
    pub fn config(&self) -> Result<Recipe, Error> {
        if !self.is_run()
            && let Some(run) = self.around()
        {
            return Err(Error::WithinRun { path: self.path.clone(), run });
        }
        if !self.path.is_dir() {
            return Err(Error::FolderMissing { path: self.path.clone() });
        }
        Recipe::read(&self.path.join(CONFIG))
    }

    /// Returns the checkpoint to continue from: the newest one that is whole and undamaged.
    pub fn newest_checkpoint(&self) -> Result<Found, Error> {
        newest(self.checkpoints())
    }

    /// Returns the checkpoint that was best by a metric.
    ///
    /// # Errors
    ///
    /// The run kept none, or it is damaged.
    pub fn best_checkpoint(&self) -> Result<Found, Error> {
        newest(self.best()).map_err(|error| match error {
            Error::NoCheckpoint { .. } => Error::NoBestCheckpoint { folder: self.path.clone() },
            error => error,
        })
    }

    /// Returns an error if another process writes the folder, or if the folder is gone; does not wait for it.
    pub fn check_claim(&self) -> Result<(), Error> {
        self.claim.as_ref().map_or(Ok(()), |claim| claim.check())
    }

    /// Returns an error if another process writes the folder, or if the folder is gone: it may be on a disk
    /// that is not mounted, and its files would seem to be empty.
    pub fn check(&self) -> Result<(), Error> {
        self.check_claim()?;
        match self.path.is_dir() {
            true => Ok(()),
            false => Err(Error::FolderGone { path: self.path.clone() }),
        }
    }

    /// Makes the run longer: it goes on by `config`, which has more epochs. A complete run is then no longer
    /// complete.
    ///
    /// # Errors
    ///
    /// The folder cannot be written.
    pub fn extend(&self, config: &Recipe) -> Result<(), Error> {
        self.write(&self.path.join(CONFIG), config.to_toml()?.as_bytes())?;
        let summary = self.path.join(SUMMARY);
        match fs::remove_file(&summary) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::file(&summary, e)),
            _ => sync_folder(&self.path).map_err(|e| Error::file(&self.path, e)),
        }
    }

    /// Writes a file as a whole and durably, unless another process writes the folder.
    pub fn write(&self, path: &Path, data: &[u8]) -> Result<(), Error> {
        self.check_claim()?;
        kolo_durable::replace(path, data).map_err(|e| Error::file(path, e))
    }

    /// Appends all of `data` or nothing to a file, which begins with `header`, unless another process writes
    /// the folder. [`RunFolder::sync_lines`] makes the bytes durable.
    pub fn append(&self, path: &Path, header: &[u8], data: &[u8]) -> Result<(), Error> {
        self.check_claim()?;
        kolo_durable::append(path, header, data).map_err(|e| Error::file(path, e))?;
        self.lines.unsynced.lock().insert(path.to_owned());
        Ok(())
    }

    /// Makes all appended lines durable: before a checkpoint seals the steps so far, and before the summary
    /// seals all of them. This may take as long as the disk takes.
    pub fn sync_lines(&self) -> Result<(), Error> {
        let _alone = self.lines.syncing.lock();
        let files = std::mem::take(&mut *self.lines.unsynced.lock());
        let mut first = Ok(());
        for path in files {
            match kolo_durable::sync_file(&path) {
                // A missing file has nothing to lose.
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    first = first.and(Err(Error::file(&path, error)));
                    self.lines.unsynced.lock().insert(path);
                }
                _ => {}
            }
        }
        first
    }
}

/// Newest good checkpoint in a folder.
fn newest(folder: PathBuf) -> Result<Found, Error> {
    let found = checkpoint::newest(&folder).map_err(|error| Error::Refused(error.into()))?;
    found.ok_or(Error::NoCheckpoint { folder })
}

/// Returns the numbered folder that this job made, if there is one.
fn numbered_of(job: &str) -> Option<PathBuf> {
    let entries = fs::read_dir("runs").into_iter().flatten().flatten();
    entries.into_iter().map(|entry| entry.path()).find(|path| is_of(path, job))
}

fn is_of(path: &Path, job: &str) -> bool {
    kolo_durable::read_to_string(&path.join(JOB)).is_ok_and(|text| text == job)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(result: Result<impl std::fmt::Debug, Error>) -> bool {
        matches!(result, Err(Error::FolderGone { .. }))
    }

    #[test]
    fn a_folder_that_is_away_is_waited_for_and_not_made_anew() {
        let place = tempfile::tempdir().unwrap();
        let (path, away) = (place.path().join("run"), place.path().join("away"));
        RunFolder::claim(path.clone(), &Recipe::default(), "job").unwrap();
        fs::rename(&path, &away).unwrap();
        let find = |limit| RunFolder::wait_for(Some(path.clone()), "job", Duration::from_millis(limit));
        assert!(gone(find(60)) && !path.exists());
        std::thread::scope(|scope| {
            let found = scope.spawn(|| find(60_000));
            fs::rename(&away, &path).unwrap();
            assert_eq!(found.join().unwrap().unwrap().path(), path);
        });
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_no_draft() {
        let place = tempfile::tempdir().unwrap();
        // A file cannot replace a folder that is not empty.
        let in_the_way = place.path().join("a");
        fs::create_dir_all(in_the_way.join("b")).unwrap();
        RunFolder::at(place.path().into()).write(&in_the_way, b"x").unwrap_err();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "what was there before");
    }

    #[test]
    fn a_run_is_complete_with_its_last_checkpoint() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(place.path().into());
        fs::write(place.path().join(SUMMARY), r#"{ "steps": 7 }"#).unwrap();
        fs::create_dir_all(checkpoint::path(&folder.checkpoints(), 6)).unwrap();
        assert!(!folder.is_complete());
        fs::create_dir_all(checkpoint::path(&folder.checkpoints(), 7)).unwrap();
        assert!(folder.is_complete());
        fs::remove_file(place.path().join(SUMMARY)).unwrap();
        assert!(!folder.is_complete());
    }

    #[test]
    fn who_is_fenced_off_changes_no_file() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(place.path().to_owned());
        let first = folder.claimed(Candidate::alone());
        let file = place.path().join("a");
        first.write(&file, b"first").unwrap();
        let second = folder.claimed(Candidate::alone());
        second.check().unwrap();
        let error = first.write(&file, b"late").unwrap_err();
        assert!(matches!(error, Error::NotTheWriter(_)) && first.check().is_err(), "{error}");
        let words = error.to_string();
        assert!(words.contains(&format!("process {}", std::process::id())), "{words}");
        second.write(&file, b"second").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "second");
    }

    #[test]
    fn a_folder_that_was_claimed_while_it_was_away_is_claimed_when_it_is_back() {
        let place = tempfile::tempdir().unwrap();
        let (path, away) = (place.path().join("run"), place.path().join("away"));
        fs::create_dir(&away).unwrap();
        let folder = RunFolder::at(path.clone()).claimed(Candidate::alone());
        assert!(gone(folder.check()) && gone(folder.write(&path.join("a"), b"x")) && !path.exists());
        fs::rename(&away, &path).unwrap();
        folder.write(&path.join("a"), b"x").unwrap();
    }

    #[test]
    fn a_run_that_has_failed_before_it_began_leaves_nothing() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(place.path().join("run"), &Recipe::default()).unwrap();
        drop(folder.claimed(Candidate::alone()).check());
        folder.discard_unused();
        assert!(!folder.path().exists());
        let folder = RunFolder::claim(place.path().join("run"), &Recipe::default(), "job").unwrap();
        for name in ["steps.jsonl", ".preprocessing.json.part"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        fs::write(folder.path().join("metrics.csv"), "epoch\n").unwrap();
        fs::create_dir(folder.checkpoints()).unwrap();
        folder.discard_unused();
        assert!(!folder.path().exists());
        // A step, a checkpoint or a foreign file keeps the folder and all in it.
        for name in ["steps.jsonl", "checkpoints/step-00000001", "thesis.tex"] {
            let folder =
                RunFolder::create(place.path().join(name.replace('/', "-")), &Recipe::default()).unwrap();
            fs::create_dir(folder.checkpoints()).unwrap();
            fs::write(folder.path().join(name), "{}\n").unwrap();
            folder.discard_unused();
            assert!(folder.is_run() && folder.path().join(name).exists(), "{name}");
            // After wrong input a step alone is of no use.
            folder.discard_without_checkpoint();
            assert_eq!(folder.is_run(), name != "steps.jsonl", "{name}");
        }
    }
}
