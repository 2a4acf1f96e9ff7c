//! The folder in which a run keeps its checkpoints: lists them, finds the newest good one, removes old ones.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use kolo_durable::rename;

use crate::error::Error;
use crate::finite::Finite;
use crate::guard::Guard;
use crate::manifest::{MANIFEST, Manifest};
use crate::position::POSITION;
use crate::read::{Reader, scan};

/// What the name of a checkpoint ends in that is about to be replaced.
const ASIDE: &str = ".old";
/// What the name of a checkpoint ends in that is being removed.
const REMOVED: &str = ".gone";

/// Where the checkpoint of a step is.
pub fn path(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!("step-{step:08}"))
}

/// Where it is while it is being written.
pub(crate) fn draft(folder: &Path, step: u64, guard: &Guard) -> PathBuf {
    folder.join(format!(".step-{step:08}{}.part", guard.draft_suffix()))
}

/// Where one is that is about to be replaced: still a checkpoint, until the new one has its name.
pub(crate) fn aside(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!(".step-{step:08}{ASIDE}"))
}

/// Where one is that is being removed.
fn removed(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!(".step-{step:08}{REMOVED}"))
}

/// The checkpoint that a path is, or that it is a file of, good or not; `None` for all else.
pub fn of_file(path: &Path) -> Option<&Path> {
    let folder = if path.is_dir() { path } else { path.parent()? };
    // Other programs have a manifest as well.
    Some(folder).filter(|folder| [MANIFEST, POSITION].iter().all(|name| folder.join(name).is_file()))
}

/// The checkpoints in a folder, good or not: step and path, by rising step. None where there is no folder.
/// One that was about to be replaced when the machine failed is one of them.
///
/// # Errors
///
/// The folder cannot be read.
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

/// The step of a checkpoint that was about to be replaced, by its name.
fn step_put_aside(name: &str) -> Option<u64> {
    name.strip_prefix(".step-")?.strip_suffix(ASIDE)?.parse().ok()
}

/// A checkpoint to continue from.
#[derive(Debug)]
pub struct Found {
    /// Steps done.
    pub step: u64,
    /// Its folder.
    pub path: PathBuf,
    /// What is wrong with the newer ones: each names its file.
    pub passed_over: Vec<Error>,
}

/// The newest checkpoint in a folder that verifies, if there are any at all.
///
/// # Errors
///
/// There are checkpoints, but each is damaged or incomplete: lists what is wrong with them.
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

/// Reads all of a checkpoint, compares it with its manifest and looks at its values, without keeping it in
/// memory.
///
/// # Errors
///
/// Names the first file that is missing or damaged, or that holds values that are not finite, and the tensors
/// that these are of.
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
        let tensors = finite.wrong();
        if !tensors.is_empty() && not_finite.is_ok() {
            not_finite = Err(Error::NotFinite { path: checkpoint.join(&entry.name), tensors });
        }
    }
    reader.position()?;
    not_finite
}

/// Removes what a run that was killed left half done, and gives a checkpoint its name back that was about to
/// be replaced.
pub(crate) fn clean(folder: &Path) {
    let names = || fs::read_dir(folder).into_iter().flatten().flatten();
    for step in names().filter_map(|entry| step_put_aside(entry.file_name().to_str()?)) {
        if !path(folder, step).exists() {
            // Where that fails it is found under its other name.
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
        // What cannot be removed is told when it stands in the way.
        let _ = fs::remove_dir_all(entry.path());
    }
}

/// Removes checkpoints older than the one of `step`, which has just become durable, so that `keep` are left
/// with it. Damaged ones do not count, and newer ones, which a run that went back has left, are not touched.
///
/// # Errors
///
/// Names the checkpoint that cannot be removed.
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
        // First hidden, so that what is half removed is not taken for half written.
        let hidden = removed(folder, older);
        let removed = fs::rename(&path, &hidden).and_then(|()| fs::remove_dir_all(&hidden));
        removed.map_err(|e| Error::file(&path, e))?;
    }
    Ok(())
}

/// Whether all files of a checkpoint are there in their lengths: what can be told without reading them.
fn is_whole(checkpoint: &Path) -> bool {
    let long = |name: &str| fs::metadata(checkpoint.join(name)).map(|file| file.len()).ok();
    let manifest = Manifest::read(checkpoint);
    manifest.is_ok_and(|m| m.files.iter().all(|file| long(&file.name) == Some(file.bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Snapshot, Writer};

    /// The machine fails between the two renames by which a checkpoint takes another one's place.
    #[test]
    fn one_that_was_about_to_be_replaced_is_not_lost() {
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
        // Where the new one has its name the other one is removed.
        fs::rename(path(folder, 1), aside(folder, 2)).unwrap();
        drop(Writer::new(folder, 3).unwrap());
        assert_eq!(list(folder).unwrap().len(), 1);
        assert!(!aside(folder, 2).exists());
    }
}
