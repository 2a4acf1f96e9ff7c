//! The run folder: what a run leaves behind, in files that others can open.
//!
//! `config.toml` (all that is needed to repeat it), `metrics.csv` (a row an epoch), `steps.jsonl` (a line a
//! step), `buckets.csv`, `checkpoints/`, `summary.json`. Only rank 0 writes.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use kolo_ddp::checkpoint::{self, Found};

use crate::config::Recipe;
use crate::error::Error;

const CONFIG: &str = "config.toml";
/// The file that only a complete run has.
pub(crate) const SUMMARY: &str = "summary.json";
/// Which job has made the folder, where each of its workers may be the first to come.
const JOB: &str = ".job";
/// How often a number may be taken by another run meanwhile.
const TRIES: usize = 100;

/// The folder of one run.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// A folder that is there already.
    pub fn at(path: PathBuf) -> Self {
        RunFolder { path }
    }

    /// Whether the run is complete.
    pub fn is_complete(&self) -> bool {
        self.path.join(SUMMARY).exists()
    }

    /// Whether the checkpoint of a step has been written: whole, or it would not have its name.
    pub(crate) fn has_checkpoint(&self, step: u64) -> bool {
        checkpoint::path(&self.checkpoints(), step).exists()
    }

    /// A new folder with the configuration in it.
    pub fn create(path: PathBuf, config: &Recipe) -> Result<Self, Error> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|e| Error::file(parent, e))?;
        }
        fs::create_dir(&path).map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => Error::FolderTaken { path: path.clone() },
            _ => Error::file(&path, e),
        })?;
        let folder = RunFolder { path };
        folder.write(&folder.path.join(CONFIG), config.to_toml()?.as_bytes())?;
        Ok(folder)
    }

    /// The folder of job `job`, which the first of its workers makes: it appears with all that belongs in it.
    pub fn claim(path: PathBuf, config: &Recipe, job: &str) -> Result<Self, Error> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(parent).map_err(|e| Error::file(parent, e))?;
        let draft = tempfile::tempdir_in(parent).map_err(|e| Error::file(parent, e))?;
        let folder = RunFolder { path: draft.path().to_owned() };
        folder.write(&folder.path.join(CONFIG), config.to_toml()?.as_bytes())?;
        folder.write(&folder.path.join(JOB), job.as_bytes())?;
        // Refused where there is a folder that is not empty.
        match fs::rename(draft.path(), &path) {
            Ok(()) => {}
            Err(_) if is_of(&path, job) => {}
            Err(_) if path.exists() => return Err(Error::FolderTaken { path }),
            Err(e) => return Err(Error::file(&path, e)),
        }
        Ok(RunFolder { path })
    }

    /// As [`Self::claim`], at `runs/<number>-<model>-<data>`.
    pub fn claim_numbered(config: &Recipe, job: &str) -> Result<Self, Error> {
        let runs = Path::new("runs");
        for _ in 0..TRIES {
            let entries = fs::read_dir(runs).into_iter().flatten().flatten();
            if let Some(entry) = entries.into_iter().find(|entry| is_of(&entry.path(), job)) {
                return Ok(RunFolder { path: entry.path() });
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

    /// Removes the folder of a run that failed before it began: it holds the configuration and nothing else.
    pub fn discard_unused(&self) {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        if entries.count() == 1 && fs::remove_file(self.path.join(CONFIG)).is_ok() {
            // Refused if something has come into it meanwhile, as it should be.
            let _ = fs::remove_dir(&self.path);
        }
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
                Err(Error::FolderTaken { .. }) if path.join(CONFIG).exists() => {}
                Err(Error::FolderTaken { path }) => return Err(Error::NotARun { path }),
                made => return made,
            }
        }
        let folder = RunFolder { path };
        match folder.config()?.difference(config)? {
            None => Ok(folder),
            Some((setting, there, here)) => {
                Err(Error::OtherRecipe { path: folder.path, setting, there, here })
            }
        }
    }

    /// Whether there is something to go on from.
    pub(crate) fn has_checkpoints(&self) -> bool {
        checkpoint::list(&self.checkpoints()).is_ok_and(|all| !all.is_empty())
    }

    /// The configuration with which the run was begun.
    ///
    /// # Errors
    ///
    /// There is no such folder, or its `config.toml` cannot be read.
    pub fn config(&self) -> Result<Recipe, Error> {
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

    /// Refuses to go on where the folder is gone: it may be on a disk that is not mounted, and its files
    /// would seem to be empty.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.path.is_dir() {
            true => Ok(()),
            false => Err(Error::FolderGone { path: self.path.clone() }),
        }
    }

    /// Whole or not at all: under a temporary name first.
    pub(crate) fn write(&self, path: &Path, data: &[u8]) -> Result<(), Error> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let draft = path.with_file_name(format!(".{name}.part"));
        let result = File::create(&draft).and_then(|mut file| {
            file.write_all(data)?;
            file.sync_all()
        });
        result.and_then(|()| fs::rename(&draft, path)).map_err(|e| Error::file(path, e))
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
    fs::create_dir_all(runs).map_err(|e| Error::file(runs, e))?;
    let number = |name: &str| name.split('-').next().and_then(|number| number.parse::<u32>().ok());
    let entries = fs::read_dir(runs).map_err(|e| Error::file(runs, e))?;
    let taken = entries.filter_map(|entry| number(entry.ok()?.file_name().to_str()?));
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

/// Whether a folder was made by this job.
fn is_of(path: &Path, job: &str) -> bool {
    fs::read_to_string(path.join(JOB)).is_ok_and(|text| text == job)
}
