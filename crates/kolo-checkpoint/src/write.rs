//! Writing of checkpoints: whole or not at all, even if the process or the machine fails meanwhile.
//!
//! All files go into a hidden folder and are synced, the manifest last. Then the folder itself is synced and
//! renamed.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use kolo_durable::{create_folder, create_folders};
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::folder::{draft, path};
use crate::guard::Guard;
use crate::hex;
use crate::manifest::{FileEntry, MANIFEST, Manifest};
use crate::outline::Outline;
use crate::position::{NOISE_SCALE, POSITION, USES};
use crate::publish::{publish, sync};
use crate::snapshot::Snapshot;
use crate::source::{FiniteSource, Source};
use crate::stream::write_tensors;

impl Snapshot {
    /// Writes it to `folder/step-<step>` and returns that path once it is durable. [`Writer`](crate::Writer)
    /// does the same without waiting.
    ///
    /// # Errors
    ///
    /// Returns an error with the file that cannot be written.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, Error> {
        create_folders(folder).map_err(|e| Error::file(folder, e))?;
        let mut source = self;
        write(folder, &self.outline, &mut source, &Guard::none())
    }
}

impl Outline {
    /// Writes a checkpoint with the values of a source to `folder/step-<step>`, and returns that path once it
    /// is durable. It holds a few MiB of them at a time, or one tensor if that is larger and lies in another
    /// order in memory.
    ///
    /// # Errors
    ///
    /// Returns an error with the file that cannot be written, or with the tensor that is not finite; or the
    /// source's.
    pub fn write(&self, folder: &Path, source: &mut dyn Source) -> Result<PathBuf, Error> {
        create_folders(folder).map_err(|e| Error::file(folder, e))?;
        write(folder, self, &mut FiniteSource { outline: self, source }, &Guard::none())
    }
}

/// Writes a checkpoint to `folder/step-<step>` and returns that path once it is durable. The folder must
/// exist: if it vanished, for example with an unmounted disk, creating it anew would be in the wrong place.
pub(crate) fn write(
    folder: &Path,
    outline: &Outline,
    source: &mut dyn Source,
    guard: &Guard,
) -> Result<PathBuf, Error> {
    guard.check(folder)?;
    let step = outline.position.step;
    let (target, draft) = (path(folder, step), draft(folder, step, guard));
    // Remains of a run that was killed while it wrote.
    let _ = fs::remove_dir_all(&draft);
    create_folder(&draft).map_err(|e| match e.kind() {
        ErrorKind::NotFound => Error::file(folder, "the folder of the checkpoints is gone; bring it back"),
        _ => Error::not_written(&draft, &e),
    })?;
    let result = fill(&draft, outline, source)
        .and_then(|()| guard.check(folder))
        // Files that belong to the steps so far must be durable before the checkpoint is.
        .map(|()| guard.seal())
        .and_then(|()| publish(folder, &draft, &target, step));
    if result.is_err() {
        // On a full disk, half a checkpoint would take the next one's space.
        let _ = fs::remove_dir_all(&draft);
    }
    result.map(|()| target)
}

fn fill(draft: &Path, outline: &Outline, source: &mut dyn Source) -> Result<(), Error> {
    let mut files = Vec::new();
    for name in outline.files() {
        files.push(write_tensors(draft, &name, &outline.tensors(&name), source)?);
    }
    let position = draft.join(POSITION);
    let mut content = serde_json::to_value(&outline.position).map_err(|e| Error::file(&position, e))?;
    content[USES] = outline.uses.clone().into();
    if let Some(noise_scale) = &outline.noise_scale {
        content[NOISE_SCALE] = noise_scale.clone().into();
    }
    outline.entries.iter().for_each(|(name, value)| content[*name] = value.clone());
    let text = serde_json::to_vec_pretty(&content).map_err(|e| Error::file(&position, e))?;
    files.push(put(draft, POSITION, &text)?);
    let manifest = draft.join(MANIFEST);
    let text = Manifest::of(files).text().map_err(|e| Error::file(&manifest, e))?;
    write_file(&manifest, text.as_bytes())?;
    sync(draft)
}

fn put(folder: &Path, name: &str, data: &[u8]) -> Result<FileEntry, Error> {
    write_file(&folder.join(name), data)?;
    let sha256 = hex(&Sha256::digest(data));
    Ok(FileEntry { name: name.into(), bytes: data.len() as u64, sha256, tensors: Vec::new() })
}

fn write_file(path: &Path, data: &[u8]) -> Result<(), Error> {
    kolo_durable::write(path, data).map_err(|e| Error::not_written(path, &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_named() {
        let error = write_file(Path::new("/dev/full"), b"x").unwrap_err().to_string();
        assert!(error.contains("/dev/full: No space left"), "{error}");
        assert!(error.ends_with("; make room there"), "{error}");
    }
}
