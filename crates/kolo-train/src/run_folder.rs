//! The run folder: what a run leaves behind, in files that others can open.
//!
//! `config.toml` (all that is needed to repeat it), `metrics.csv` (a row an epoch), `steps.jsonl` (a line a
//! step), `buckets.csv`, `checkpoints/`, `summary.json`. Only rank 0 writes.

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
use parking_lot::Mutex;

use crate::config::Recipe;
use crate::error::Error;
use crate::run_claim::{RunClaim, from_claim, tell_waiting};

const CONFIG: &str = "config.toml";
/// The file that only a complete run has.
pub(crate) use kolo_run_folder::SUMMARY;
/// Which job has made the folder, where each of its workers may be the first to come.
const JOB: &str = ".job";
/// Where the claims of those who write it are.
const CLAIMS: &str = ".claims";
/// What a run folder may hold before the first step is written down.
const BEFORE_A_STEP: [&str; 13] = [
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
/// For how long a worker that is started in a dead one's place waits for a folder that is away.
const AWAY: Duration = Duration::from_secs(60);
/// How often a number may be taken by another run meanwhile.
const TRIES: usize = 100;

/// The folder of one run.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// The right to write it, on rank 0 while it trains.
    claim: Option<Arc<RunClaim>>,
    /// Files with lines that are not durable yet.
    lines: Arc<Lines>,
}

/// Files with lines that are not durable yet.
#[derive(Debug, Default)]
struct Lines {
    unsynced: Mutex<BTreeSet<PathBuf>>,
    /// Held by whoever syncs them: another one must not take them for synced before they are.
    syncing: Mutex<()>,
}

impl RunFolder {
    /// A folder that is there already.
    pub fn at(path: PathBuf) -> Self {
        RunFolder { path, claim: None, lines: Arc::default() }
    }

    /// Whether there is a run in it.
    pub(crate) fn is_run(&self) -> bool {
        self.path.join(CONFIG).exists()
    }

    /// The run folder in which this is a folder of checkpoints, a checkpoint, or a file of one.
    pub(crate) fn around(&self) -> Option<PathBuf> {
        let path = fs::canonicalize(&self.path).ok()?;
        let found = path.ancestors().skip(1).take(3).find(|above| above.join(CONFIG).exists())?;
        // As the user has spelled it, where that can be.
        let steps = path.strip_prefix(found).ok()?.components().count();
        let spelled = self.path.ancestors().nth(steps).filter(|above| !above.as_os_str().is_empty());
        Some(spelled.map_or(found.to_owned(), Path::to_owned))
    }

    /// Whether the run is complete: its summary is there, and the checkpoint of its last step, which may have
    /// been lost to a full disk.
    pub fn is_complete(&self) -> bool {
        let text = fs::read_to_string(self.path.join(SUMMARY)).unwrap_or_default();
        let summary = serde_json::from_str::<serde_json::Value>(&text).unwrap_or_default();
        summary["steps"].as_u64().is_some_and(|steps| self.has_checkpoint(steps))
    }

    /// Whether the checkpoint of a step has been written: whole, or it would not have its name.
    pub(crate) fn has_checkpoint(&self, step: u64) -> bool {
        checkpoint::path(&self.checkpoints(), step).exists()
    }

    /// A new folder with the configuration in it.
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

    /// The folder of job `job`, which the first of its workers makes: it appears with all that belongs in it.
    pub fn claim(path: PathBuf, config: &Recipe, job: &str) -> Result<Self, Error> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        create_folders(parent).map_err(|e| Error::file(parent, e))?;
        let draft = tempfile::tempdir_in(parent).map_err(|e| Error::file(parent, e))?;
        let folder = RunFolder::at(draft.path().to_owned());
        folder.write(&folder.path.join(CONFIG), config.to_toml()?.as_bytes())?;
        folder.write(&folder.path.join(JOB), job.as_bytes())?;
        // Refused where there is a folder that is not empty.
        match kolo_durable::rename(draft.path(), &path) {
            Ok(()) => sync_folder(parent).map_err(|e| Error::file(parent, e))?,
            Err(_) if is_of(&path, job) => {}
            Err(_) if path.exists() => return Err(RunFolder::at(path).taken()),
            Err(e) => return Err(Error::file(&path, e)),
        }
        Ok(RunFolder::at(path))
    }

    /// As [`Self::claim`], at `runs/<number>-<model>-<data>`.
    pub fn claim_numbered(config: &Recipe, job: &str) -> Result<Self, Error> {
        let runs = Path::new("runs");
        for _ in 0..TRIES {
            if let Some(path) = numbered_of(job) {
                return Ok(RunFolder::at(path));
            }
            let path = next_number(config)?;
            // Another one may have come first: of this job, then the folder is found next time, or of
            // another.
            match Self::claim(path.clone(), config, job) {
                Err(_) if path.exists() => {}
                claimed => return claimed,
            }
        }
        Err(Error::NumbersTaken { runs: runs.to_owned() })
    }

    /// `runs/<number>-<model>-<data>`, with the first free number.
    pub fn create_numbered(config: &Recipe) -> Result<Self, Error> {
        Self::create(next_number(config)?, config)
    }

    /// Where [`Self::create_numbered`] would make it. Nothing is made.
    ///
    /// # Errors
    ///
    /// The folder `runs` cannot be read.
    pub fn next_numbered(config: &Recipe) -> Result<PathBuf, Error> {
        next_number(config)
    }

    /// The folder of a job that has begun before this worker was started: where it is not there it is away,
    /// and is waited for instead of being made anew. `path`: `None` for a numbered one.
    ///
    /// # Errors
    ///
    /// It has not come back within a minute.
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

    /// Waits until nobody writes to the folder any more, as far as that can be told.
    ///
    /// # Errors
    ///
    /// Another process writes it ([`Error::NotTheWriter`]), and the user has not said to `take_over`.
    pub fn wait_until_free(&self, take_over: bool) -> Result<(), Error> {
        let candidate = Candidate { take_over, ..Candidate::alone() };
        kolo_claim::wait_until_free(&self.path, &candidate, tell_waiting).map_err(from_claim)
    }

    /// The same folder as the process sees it that may write it.
    pub(crate) fn claimed(&self, candidate: Candidate) -> Self {
        let claim = RunClaim::new(&self.path, candidate);
        RunFolder { claim: Some(Arc::new(claim)), ..self.clone() }
    }

    /// The right to write it.
    pub(crate) fn run_claim(&self) -> Option<&Arc<RunClaim>> {
        self.claim.as_ref()
    }

    /// Removes the folder of a run that failed before its first step was written down: it would stand in the
    /// way of the run that is started as it should be. A folder with anything else in it stays.
    pub fn discard_unused(&self) {
        if !self.is_unused() {
            return;
        }
        let entries: Vec<PathBuf> =
            fs::read_dir(&self.path).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        let config = self.path.join(CONFIG);
        // What cannot be removed stays, and the folder with it.
        for path in entries.into_iter().filter(|path| *path != config) {
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
        if fs::remove_file(config).is_ok() {
            // Refused if something has come into it meanwhile, as it should be.
            let _ = fs::remove_dir(&self.path);
        }
    }

    /// Whether it holds a run that has not come to write down a step, and nothing of anybody else's.
    fn is_unused(&self) -> bool {
        let is_empty_file =
            |name: &str| fs::metadata(self.path.join(name)).map_or(true, |file| file.len() == 0);
        let is_empty_folder =
            |path: &Path| fs::read_dir(path).map_or(true, |mut inside| inside.next().is_none());
        let mut entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let is_known = |name: &str| {
            let draft = name.strip_prefix('.').and_then(|name| name.strip_suffix(".part"));
            BEFORE_A_STEP.contains(&draft.unwrap_or(name))
        };
        self.is_run()
            && is_empty_file(kolo_run_folder::STEPS)
            && is_empty_folder(&self.checkpoints())
            && is_empty_folder(&self.best())
            && entries.all(|entry| entry.file_name().to_str().is_some_and(is_known))
    }

    /// Whether some process has claimed it, to write it.
    pub(crate) fn is_claimed(&self) -> bool {
        fs::read_dir(self.path.join(CLAIMS)).is_ok_and(|mut claims| claims.next().is_some())
    }

    /// Where the folder is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// Where the checkpoint is that is best by a metric.
    pub(crate) fn best(&self) -> PathBuf {
        self.path.join("best")
    }

    /// The folder of a run that this program makes or goes on with: what is at `path` has to be of a run with
    /// the same configuration, or nothing. `job`: of a job whose workers come and go, each of which may be
    /// the first.
    ///
    /// # Errors
    ///
    /// The run there has another configuration (naming the setting), the folder holds something else, or it
    /// cannot be made.
    pub fn create_or_continue(path: PathBuf, config: &Recipe, job: Option<&str>) -> Result<Self, Error> {
        if !path.join(CONFIG).exists() {
            // Refused where there are files in it, as it should be.
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
            // Nothing is there that the other settings could have made: an earlier try failed.
            Some(_) if !folder.has_checkpoints() && !folder.is_complete() => folder.begin_anew(config),
            Some((setting, there, here)) => {
                Err(Error::OtherRecipe { path: folder.path, setting, there, here })
            }
        }
    }

    /// Takes over the folder of a run that has left nothing to go on from, for one with another configuration.
    ///
    /// # Errors
    ///
    /// That run goes on ([`Error::NotTheWriter`]), or the configuration cannot be written.
    fn begin_anew(self, config: &Recipe) -> Result<Self, Error> {
        self.wait_until_free(false)?;
        let written = self.write(&self.path.join(CONFIG), config.to_toml()?.as_bytes());
        match written {
            // Another worker of the job may have been faster.
            Err(_) if self.config()?.difference(config)?.is_none() => Ok(self),
            written => written.map(|()| self),
        }
    }

    /// Why a new run cannot have it.
    fn taken(self) -> Error {
        match self.is_run() && !self.has_checkpoints() && !self.is_complete() {
            true => Error::NothingToResume { path: self.path },
            false => Error::FolderTaken { path: self.path },
        }
    }

    /// Whether there is something to go on from.
    pub fn has_checkpoints(&self) -> bool {
        checkpoint::list(&self.checkpoints()).is_ok_and(|all| !all.is_empty())
    }

    /// The configuration with which the run was begun.
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

    /// The checkpoint to continue from: the newest that is whole and undamaged.
    pub fn newest_checkpoint(&self) -> Result<Found, Error> {
        newest(self.checkpoints())
    }

    /// The checkpoint that was best by a metric.
    pub(crate) fn best_checkpoint(&self) -> Result<Found, Error> {
        newest(self.best())
    }

    /// Refuses to write where another process does, and waits for no folder that is gone.
    pub(crate) fn check_claim(&self) -> Result<(), Error> {
        self.claim.as_ref().map_or(Ok(()), |claim| claim.check())
    }

    /// Refuses to go on where another process writes, or the folder is gone: it may be on a disk that is not
    /// mounted, and its files would seem to be empty.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.check_claim()?;
        match self.path.is_dir() {
            true => Ok(()),
            false => Err(Error::FolderGone { path: self.path.clone() }),
        }
    }

    /// Whole or not at all, and durably: under a temporary name first. Not where another process writes.
    pub(crate) fn write(&self, path: &Path, data: &[u8]) -> Result<(), Error> {
        self.check_claim()?;
        kolo_durable::replace(path, data).map_err(|e| Error::file(path, e))
    }

    /// Adds to a file, which begins with `header`, all of `data` or nothing. Not where another process writes.
    /// The bytes are durable after [`RunFolder::sync_lines`].
    pub(crate) fn append(&self, path: &Path, header: &[u8], data: &[u8]) -> Result<(), Error> {
        self.check_claim()?;
        kolo_durable::append(path, header, data).map_err(|e| Error::file(path, e))?;
        self.lines.unsynced.lock().insert(path.to_owned());
        Ok(())
    }

    /// Makes all that was added to files durable: before a checkpoint says that the steps so far are done, and
    /// before the summary says that all are. It may take as long as a disk takes.
    pub(crate) fn sync_lines(&self) -> Result<(), Error> {
        let _alone = self.lines.syncing.lock();
        let files = std::mem::take(&mut *self.lines.unsynced.lock());
        let mut first = Ok(());
        for path in files {
            match kolo_durable::sync_file(&path) {
                // There is nothing to be lost.
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

/// The newest good checkpoint in a folder.
fn newest(folder: PathBuf) -> Result<Found, Error> {
    let found = checkpoint::newest(&folder).map_err(|error| Error::Refused(error.into()))?;
    found.ok_or(Error::NoCheckpoint { folder })
}

/// The first numbered folder that is free.
fn next_number(config: &Recipe) -> Result<PathBuf, Error> {
    let runs = Path::new("runs");
    let number = |name: &str| name.split('-').next().and_then(|number| number.parse::<u32>().ok());
    let entries = match fs::read_dir(runs) {
        Err(e) if e.kind() == ErrorKind::NotFound => None,
        read => Some(read.map_err(|e| Error::file(runs, e))?),
    };
    let taken = entries.into_iter().flatten().filter_map(|entry| number(entry.ok()?.file_name().to_str()?));
    let mut next = taken.max().unwrap_or(0) + 1;
    let data = config.data.split(':').next().unwrap_or_default();
    loop {
        let path = runs.join(format!("{next:04}-{}-{data}", config.model));
        // Another run may have taken the number meanwhile.
        if !path.exists() {
            return Ok(path);
        }
        next += 1;
    }
}

/// The numbered folder that was made by this job, if it is there.
fn numbered_of(job: &str) -> Option<PathBuf> {
    let entries = fs::read_dir("runs").into_iter().flatten().flatten();
    entries.into_iter().map(|entry| entry.path()).find(|path| is_of(path, job))
}

/// Whether a folder was made by this job.
fn is_of(path: &Path, job: &str) -> bool {
    fs::read_to_string(path.join(JOB)).is_ok_and(|text| text == job)
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
        // A folder that is not empty cannot be replaced by a file.
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
        // A step, a checkpoint, and what is somebody else's are kept, and all else with them.
        for name in ["steps.jsonl", "checkpoints/step-00000001", "thesis.tex"] {
            let folder =
                RunFolder::create(place.path().join(name.replace('/', "-")), &Recipe::default()).unwrap();
            fs::create_dir(folder.checkpoints()).unwrap();
            fs::write(folder.path().join(name), "{}\n").unwrap();
            folder.discard_unused();
            assert!(folder.is_run() && folder.path().join(name).exists(), "{name}");
        }
    }
}
