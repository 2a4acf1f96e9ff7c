//! The folder in which a run keeps its checkpoints: lists them, finds the newest good one, removes old ones.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::manifest::Manifest;
use crate::read::{Reader, scan};

/// Where the checkpoint of a step is.
pub fn path(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!("step-{step:08}"))
}

/// Where it is while it is being written.
pub(crate) fn draft(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!(".step-{step:08}.part"))
}

/// Where one is that is about to be replaced.
pub(crate) fn aside(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!(".step-{step:08}.old"))
}

/// The checkpoints in a folder, good or not: step and path, by rising step. None where there is no folder.
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
    let mut all = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| Error::file(folder, e))?;
        let name = entry.file_name();
        let step = name.to_str().and_then(|name| name.strip_prefix("step-")?.parse().ok());
        all.extend(step.map(|step| (step, entry.path())));
    }
    all.sort();
    Ok(all)
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

/// Reads all of a checkpoint and compares it with its manifest, without keeping it in memory.
///
/// # Errors
///
/// Names the first file that is missing or damaged.
pub fn verify(checkpoint: &Path) -> Result<(), Error> {
    let reader = Reader::open(checkpoint)?;
    reader.manifest().files.iter().try_for_each(|entry| scan(checkpoint, entry, |_| {}))?;
    reader.position().map(drop)
}

/// Removes what a run that was killed left half done.
pub(crate) fn clean(folder: &Path) {
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    let left = names.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with(".step-") && (name.ends_with(".part") || name.ends_with(".old"))
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
        let aside = aside(folder, older);
        let removed = fs::rename(&path, &aside).and_then(|()| fs::remove_dir_all(&aside));
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
