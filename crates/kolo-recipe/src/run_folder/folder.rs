//! A run folder with its paths, its configuration and its checkpoints.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kolo_ddp::checkpoint::{self, Found};
use kolo_run_folder::SUMMARY;
use parking_lot::Mutex;

use crate::error::Error;
use crate::recipe::Recipe;
use crate::run_claim::RunClaim;

pub(super) const CONFIG: &str = "config.toml";
pub(super) const TOKENIZER: &str = "tokenizer.json";
pub(super) const CLAIMS: &str = ".claims";

/// The folder of one run.
///
/// ```no_run
/// use kolo_recipe::RunFolder;
///
/// let run = RunFolder::at("runs/mlp".into());
/// println!("{} epochs of {}", run.config()?.epochs, run.config()?.model);
/// println!("newest checkpoint: {:?}", run.newest_checkpoint()?);
/// # Ok::<(), kolo_recipe::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RunFolder {
    pub(super) path: PathBuf,
    /// Right to write the folder, on rank 0 during a training.
    pub(super) claim: Option<Arc<RunClaim>>,
    pub(super) lines: Arc<Lines>,
}

/// Files with lines that are not durable yet.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) unsynced: Mutex<BTreeSet<PathBuf>>,
    /// Held during a sync: another thread must not take the files for synced before they are.
    pub(super) syncing: Mutex<()>,
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
            return Err(match self.path.exists() {
                true => Error::NoConfig { path: self.path.clone() },
                false => Error::FolderMissing { path: self.path.clone() },
            });
        }
        if !self.is_run() {
            return Err(Error::NoConfig { path: self.path.clone() });
        }
        let mut config = Recipe::read(&self.path.join(CONFIG))?;
        self.set_tokenizer(&mut config);
        Ok(config)
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
}

/// Newest good checkpoint in a folder.
fn newest(folder: PathBuf) -> Result<Found, Error> {
    let found = checkpoint::newest(&folder).map_err(|error| Error::Refused(error.into()))?;
    found.ok_or(Error::NoCheckpoint { folder })
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
