//! Run folders that are made, found, or continued.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use kolo_durable::{create_folder, create_folders, sync_folder};

use super::folder::{CONFIG, RunFolder};
use crate::error::Error;
use crate::recipe::Recipe;

/// File with the id of the job that made the folder, whose workers may each be the first to come.
pub(super) const JOB: &str = ".job";
/// Time that a replacement of a dead worker waits for a folder that is away.
const AWAY: Duration = Duration::from_secs(60);
/// Most tries for a number that no other run takes first.
const TRIES: usize = 100;

impl RunFolder {
    /// Makes a new folder with the configuration in it. An empty one may exist.
    pub fn create(path: PathBuf, config: &Recipe) -> Result<Self, Error> {
        Self::make(path, config, is_unfinished)
    }

    /// Makes a new folder with the configuration in it. `accepts` decides if one that exists is as good.
    fn make(path: PathBuf, config: &Recipe, accepts: fn(&Path) -> bool) -> Result<Self, Error> {
        if let Some(parent) = path.parent() {
            create_folders(parent).map_err(|e| unmade(&path, parent, e))?;
        }
        match create_folder(&path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists && accepts(&path) => {}
            Err(e) if e.kind() == ErrorKind::AlreadyExists => return Err(RunFolder::at(path).taken()),
            made => made.map_err(|e| unmade(&path, &path, e))?,
        }
        let folder = RunFolder::at(path);
        let begun = folder.begin(config);
        if matches!(begun, Err(Error::File { .. })) {
            // An empty folder would be in the way of the next try.
            let _ = fs::remove_dir(&folder.path);
        }
        begun.map(|()| folder)
    }

    /// Puts the configuration into a folder without one. Of several jobs that do so at once, one succeeds.
    fn begin(&self, config: &Recipe) -> Result<(), Error> {
        let file = self.path.join(CONFIG);
        let created = kolo_claim::create_exclusively(&file, config.to_toml()?.as_bytes());
        match created.map_err(|e| Error::file(&file, e))? {
            true => Ok(()),
            false => Err(RunFolder::at(self.path.clone()).taken()),
        }
    }

    /// Makes or finds the folder of job `job`. It appears with all its initial files at once.
    pub fn claim(path: PathBuf, config: &Recipe, job: &str) -> Result<Self, Error> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        create_folders(parent).map_err(|e| unmade(&path, parent, e))?;
        let draft = tempfile::tempdir_in(parent).map_err(|e| unmade(&path, parent, e))?;
        let folder = RunFolder::at(draft.path().to_owned());
        folder.write(&folder.path.join(CONFIG), config.to_toml()?.as_bytes())?;
        folder.write(&folder.path.join(JOB), job.as_bytes())?;
        // It replaces an empty folder.
        match kolo_durable::rename(draft.path(), &path) {
            Ok(()) => sync_folder(parent).map_err(|e| Error::file(parent, e))?,
            Err(_) if is_of(&path, job) => {}
            // Another job may be about to make it, or it is one that cannot be replaced, such as a mount.
            Err(_) if is_unfinished(&path) => {
                let folder = RunFolder::at(path.clone());
                folder.begin(config)?;
                folder.replace(JOB, job.as_bytes())?;
            }
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
        // Another run may take the number in the meantime.
        Self::make(Self::next_numbered(config)?, config, |_| false)
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
            let model = config.model.replace(':', "-");
            let names = [&*model, data].into_iter().filter(|name| !name.is_empty());
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
            let made = match job {
                Some(job) => Self::claim(path.clone(), config, job),
                None => Self::create(path.clone(), config),
            };
            match made {
                // Another worker of the job may have been faster.
                Err(
                    Error::FolderTaken { .. }
                    | Error::NothingToResume { .. }
                    | Error::FolderInUse { .. }
                    | Error::NotARun { .. },
                ) if path.join(CONFIG).exists() => {}
                made => return made,
            }
        }
        let folder = RunFolder::at(path);
        match folder.config()?.difference(config)? {
            None => folder.divide_as(config),
            // An earlier try failed: nothing in the folder depends on the other settings.
            Some(_) if !folder.has_checkpoints() && !folder.is_complete() => folder.rewrite(config),
            Some((setting, there, here)) => {
                let on_resume = config.on_resume(&setting);
                Err(Error::OtherRecipe { path: folder.path, setting, there, here, on_resume })
            }
        }
    }

    /// Records that the run goes on with its state divided as in `config`.
    fn divide_as(self, config: &Recipe) -> Result<Self, Error> {
        if self.has(config)? {
            return Ok(self);
        }
        let Recipe { shard, offload, redundancy, .. } = config.clone();
        let divided = Recipe { shard, redundancy, offload, ..self.config()? };
        self.rewrite(&divided)
    }

    /// Records the configuration of a run that begins, if another job that began at the same time has put its
    /// own there. Only the job that has claimed the folder calls it. A folder without a configuration stays so.
    ///
    /// # Errors
    ///
    /// The folder is gone or cannot be written to, or another process has claimed it.
    pub fn keep_config(&self, config: &Recipe) -> Result<(), Error> {
        match !self.is_run() || self.has_checkpoints() || self.has(config)? {
            true => Ok(()),
            false => self.replace(CONFIG, config.to_toml()?.as_bytes()),
        }
    }

    /// Returns true if the run continues as `config` says, and its state is divided so.
    fn has(&self, config: &Recipe) -> Result<bool, Error> {
        let own = self.config()?;
        let is_divided_so =
            own.shard == config.shard && own.redundancy == config.redundancy && own.offload == config.offload;
        Ok(is_divided_so && own.difference(config)?.is_none())
    }

    /// Replaces the configuration of a run. Fails if the run is still active ([`Error::NotTheWriter`]).
    fn rewrite(self, config: &Recipe) -> Result<Self, Error> {
        self.wait_until_free(false)?;
        match self.replace(CONFIG, config.to_toml()?.as_bytes()) {
            // Another worker of the job may have been faster.
            Err(_) if self.has(config)? => Ok(self),
            written => written.map(|()| self),
        }
    }

    /// Returns the error of a new run whose folder exists.
    fn taken(self) -> Error {
        match self.is_run() && !self.has_checkpoints() && !self.is_complete() {
            true if self.is_written() => Error::FolderInUse { path: self.path },
            true => Error::NothingToResume { path: self.path },
            false if self.is_run() => Error::FolderTaken { path: self.path },
            false if !self.path.is_dir() => Error::NoFolder { path: self.path },
            false => Error::NotARun { path: self.path },
        }
    }
}

/// Returns true if a folder is empty but for drafts, as one whose maker was killed, or has not ended yet.
fn is_unfinished(path: &Path) -> bool {
    let is_draft = |file: fs::DirEntry| file.file_name().to_string_lossy().starts_with(kolo_claim::DRAFT);
    fs::read_dir(path).is_ok_and(|mut files| files.all(|file| file.is_ok_and(is_draft)))
}

/// Returns the error of a run folder that cannot be made, because of a file or folder `at`.
fn unmade(path: &Path, at: &Path, cause: io::Error) -> Error {
    match cause.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::file(at, cause),
        _ => Error::NotMade { path: path.into(), at: at.into(), cause },
    }
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
mod tests;
