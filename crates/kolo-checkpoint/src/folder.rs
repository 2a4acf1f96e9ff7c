//! Folder of a run's checkpoints: lists them, finds the newest good one, and removes old ones.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use kolo_durable::rename;

use crate::error::Error;
use crate::finite::Finite;
use crate::guard::Guard;
use crate::manifest::{MANIFEST, Manifest};
use crate::position::POSITION;
use crate::read::Reader;
use crate::stored_file::scan;

/// Suffix of a checkpoint that is about to be replaced.
const ASIDE: &str = ".old";
/// Suffix of a checkpoint that is being removed.
const REMOVED: &str = ".gone";

/// Returns the path of a step's checkpoint.
pub fn path(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!("step-{step:08}"))
}

/// Returns the path of a checkpoint while it is being written.
pub(crate) fn draft(folder: &Path, step: u64, guard: &Guard) -> PathBuf {
    folder.join(format!(".step-{step:08}{}.part", guard.draft_suffix()))
}

/// Returns the path of a checkpoint that is about to be replaced. It stays valid until the new one has its
/// name.
pub(crate) fn aside(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!(".step-{step:08}{ASIDE}"))
}

/// Returns the path of a checkpoint that is being removed.
fn removed(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!(".step-{step:08}{REMOVED}"))
}

/// Returns the checkpoint, good or not, that `path` is or that contains the file `path`.
pub fn of_file(path: &Path) -> Option<&Path> {
    let folder = if path.is_dir() { path } else { path.parent()? };
    // Other programs' folders may have a manifest as well, so both names must exist.
    Some(folder).filter(|folder| [MANIFEST, POSITION].iter().all(|name| folder.join(name).is_file()))
}

/// Returns step and path of all checkpoints in a folder, good or not, by ascending step. The list is empty if
/// the folder does not exist. It includes a checkpoint that was about to be replaced when the machine failed.
///
/// # Errors
///
/// Returns an error if the folder cannot be read.
pub fn list(folder: &Path) -> Result<Vec<(u64, PathBuf)>, Error> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Error::file(folder, e)),
    };
    let (mut all, mut put_aside) = (Vec::new(), Vec::new());
    for entry in entries {
        let entry = entry.map_err(|e| Error::file(folder, e))?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let step = name.strip_prefix("step-").and_then(|step| step.parse().ok());
        all.extend(step.map(|step: u64| (step, entry.path())));
        put_aside.extend(step_put_aside(name).map(|step| (step, entry.path())));
    }
    put_aside.retain(|(step, _)| all.iter().all(|(known, _)| known != step));
    all.extend(put_aside);
    all.sort();
    Ok(all)
}

/// Returns the step of a checkpoint that was about to be replaced, from its name.
fn step_put_aside(name: &str) -> Option<u64> {
    name.strip_prefix(".step-")?.strip_suffix(ASIDE)?.parse().ok()
}

/// Checkpoint to continue from.
#[derive(Debug)]
pub struct Found {
    /// Steps done.
    pub step: u64,
    /// Folder of the checkpoint.
    pub path: PathBuf,
    /// Errors of the newer checkpoints, each with the name of its file.
    pub passed_over: Vec<Error>,
}

/// Returns the newest checkpoint in a folder that verifies, or `None` if the folder has no checkpoints.
///
/// # Errors
///
/// Returns an error that lists all problems if there are checkpoints, but each is damaged or incomplete.
pub fn newest(folder: &Path) -> Result<Option<Found>, Error> {
    let mut passed_over = Vec::new();
    for (step, path) in list(folder)?.into_iter().rev() {
        match verify(&path) {
            Ok(()) => return Ok(Some(Found { step, path, passed_over })),
            Err(error) => passed_over.push(error),
        }
    }
    if passed_over.is_empty() {
        return Ok(None);
    }
    let list: Vec<String> = passed_over.iter().map(|error| format!("\n  {error}")).collect();
    Err(Error::file(
        folder,
        format!("holds no good checkpoint; start anew, or put one there:{}", list.concat()),
    ))
}

/// Reads all of a checkpoint without keeping it in memory, compares it with its manifest and tests its
/// values.
///
/// # Errors
///
/// Returns an error with the first file that is missing or damaged. If all files are intact but values are
/// not finite, the error names the first such file and its tensors.
pub fn verify(checkpoint: &Path) -> Result<(), Error> {
    let reader = Reader::open(checkpoint)?;
    let mut not_finite = Ok(());
    for entry in &reader.manifest().files {
        let mut finite = Finite::new(entry);
        scan(checkpoint, entry, |block| {
            if !entry.tensors.is_empty() {
                finite.take(block);
            }
        })?;
        let tensors = finite.not_finite();
        if !tensors.is_empty() && not_finite.is_ok() {
            not_finite = Err(Error::NotFinite { path: checkpoint.join(&entry.name), tensors });
        }
    }
    reader.position()?;
    not_finite
}

/// Removes the remains of a run that was killed, and restores the name of a checkpoint that was about to be
/// replaced.
pub(crate) fn clean(folder: &Path) {
    let names = || fs::read_dir(folder).into_iter().flatten().flatten();
    for step in names().filter_map(|entry| step_put_aside(entry.file_name().to_str()?)) {
        if !path(folder, step).exists() {
            // If this fails, `list` still finds the checkpoint under its other name.
            let _ = rename(&aside(folder, step), &path(folder, step));
        }
    }
    let left = names().filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_replaced = || step_put_aside(&name).is_some_and(|step| path(folder, step).exists());
        name.starts_with(".step-") && (name.ends_with(".part") || name.ends_with(REMOVED) || is_replaced())
    });
    for entry in left {
        // A later write reports what is still in its way.
        let _ = fs::remove_dir_all(entry.path());
    }
}

/// Removes checkpoints older than that of `step`, which is durable, so that `keep` remain in total. Damaged
/// ones do not count. Newer ones, from a run that went back, stay.
/// Returns an error with the checkpoint that cannot be removed.
pub(crate) fn prune(folder: &Path, step: u64, keep: usize) -> Result<(), Error> {
    let mut kept = 1;
    for (older, path) in list(folder)?.into_iter().rev() {
        if older >= step {
            continue;
        }
        if kept < keep {
            kept += usize::from(is_whole(&path));
            continue;
        }
        // Rename it first: a half-removed checkpoint must not look like a half-written one.
        let hidden = removed(folder, older);
        let removed = fs::rename(&path, &hidden).and_then(|()| fs::remove_dir_all(&hidden));
        removed.map_err(|e| Error::file(&path, e))?;
    }
    Ok(())
}

/// Returns true if all files of a checkpoint have the lengths of the manifest, without reading their
/// contents.
fn is_whole(checkpoint: &Path) -> bool {
    let long = |name: &str| fs::metadata(checkpoint.join(name)).map(|file| file.len()).ok();
    let manifest = Manifest::read(checkpoint);
    manifest.is_ok_and(|m| m.files.iter().all(|file| long(&file.name) == Some(file.bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Snapshot, Writer};

    /// The machine fails between the two renames that replace a checkpoint.
    #[test]
    fn a_checkpoint_about_to_be_replaced_is_not_lost() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path();
        (1..=2).for_each(|step| drop(Snapshot::for_tests(step).write(folder).unwrap()));
        fs::rename(path(folder, 2), aside(folder, 2)).unwrap();
        fs::create_dir(draft(folder, 2, &Guard::none())).unwrap();
        assert_eq!(newest(folder).unwrap().unwrap().step, 2);
        drop(Writer::new(folder, 3).unwrap());
        let found = newest(folder).unwrap().unwrap();
        assert_eq!((found.step, found.path), (2, path(folder, 2)));
        assert_eq!(fs::read_dir(folder).unwrap().count(), 2, "and the draft is removed");
        // Once the new checkpoint has its name, the old one is removed.
        fs::rename(path(folder, 1), aside(folder, 2)).unwrap();
        drop(Writer::new(folder, 3).unwrap());
        assert_eq!(list(folder).unwrap().len(), 1);
        assert!(!aside(folder, 2).exists());
    }
}
