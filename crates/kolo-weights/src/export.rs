//! Exports a run's weights to a file, with a description beside it.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kolo_ddp::checkpoint::{self, Reader};
use kolo_recipe::{Error, RunFolder};

use crate::description::{self, Description};
use crate::error::WeightsError;
use crate::format::{Draft, Tensors, WeightFormat};
use crate::tensors::CheckpointTensors;

/// Result of an export.
#[derive(Clone, Debug)]
pub struct Exported {
    /// Contents of the file.
    pub description: Description,
    /// File of the description, `<file>.json`.
    pub description_path: PathBuf,
    /// Number of the tensors in the file.
    pub tensors: usize,
}

/// Selects one of a run's checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The newest good one.
    Newest,
    /// The one after so many steps.
    Step(u64),
    /// The one that was best by a metric ([`Recipe::best_metric`](kolo_recipe::Recipe)).
    Best,
}

/// Writes the weights of a run's checkpoint to the file or folder `out`, and their [`Description`] to
/// `<file>.json`. The tokenizer of a text is beside them, as `<file>.tokenizer.json` or in the folder. The
/// same checkpoint gives the same bytes.
///
/// # Errors
///
/// The folder is not a run folder or has no such checkpoint, the checkpoint is damaged, the format is not for
/// the model, or a file exists already or cannot be written; names the folder or file.
pub fn export(
    run: &RunFolder,
    which: Which,
    format: &WeightFormat,
    out: &Path,
) -> Result<Exported, WeightsError> {
    if run.path().is_dir() && !run.is_run() && run.around().is_none() {
        return Err(WeightsError::NoRun { path: run.path().into() });
    }
    (format.check)(&run.config()?)?;
    let file = format.folder.as_ref().map_or(out.into(), |folder| out.join(folder.weights));
    let description_path = description::path(&file);
    let tokenizer = run.config()?.input.kept_tokenizer;
    let tokenizer_path = match format.is_folder() {
        true => out.join("tokenizer.json"),
        false => description::beside(out, ".tokenizer.json"),
    };
    for path in [out, &description_path, &tokenizer_path] {
        if fs::symlink_metadata(path).is_ok() {
            return Err(WeightsError::OutTaken { path: path.into() });
        }
    }
    let reader = Reader::open(&checkpoint(run, which)?)?;
    let tensors: Arc<dyn Tensors> = Arc::new(CheckpointTensors::new(&reader, format.stored));
    let description = Description::of(run, &reader.position()?)?;
    // Damage is found before anything is written.
    if !tensors.heads().is_empty() {
        tensors.bytes(0)?;
    }
    let mut made = Vec::new();
    let write = || -> Result<usize, WeightsError> {
        if let Some(folder) = &format.folder {
            let config = (folder.encode)(tensors.heads(), &description)?;
            fs::create_dir(out).map_err(|e| Error::file(out, e))?;
            made.push(out.to_owned());
            made.push(out.join(folder.config));
            write_new(&out.join(folder.config), config.as_bytes())?;
        }
        if let Some(path) = tokenizer {
            let json = kolo_durable::read(&path).map_err(|source| WeightsError::Read { path, source })?;
            write_new(&tokenizer_path, &json)?;
            made.push(tokenizer_path.clone());
        }
        // The description comes first, so that the weights never exist without it.
        write_new(&description_path, description.json()?.as_bytes())?;
        made.push(description_path.clone());
        write_new_with(&file, |draft| (format.write)(&tensors, &description, draft))
    };
    let written = write();
    if written.is_err() {
        // Half an export would be in the way of the next one.
        for path in made.iter().rev() {
            let _ = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
        }
    }
    Ok(Exported { description, description_path, tensors: written? })
}

/// Returns the path of one of a run's checkpoints; warns about newer ones that are damaged.
///
/// # Errors
///
/// The run has no such checkpoint.
pub fn checkpoint(run: &RunFolder, which: Which) -> Result<PathBuf, WeightsError> {
    let found = match which {
        Which::Step(step) => return of_step(run, step),
        Which::Newest => run.newest_checkpoint()?,
        Which::Best => run.best_checkpoint()?,
    };
    for problem in &found.passed_over {
        log::warn!("{problem}; {} is used", found.path.display());
    }
    Ok(found.path)
}

/// Returns the path of the weights with which a run in `folder` begins, of a file or a run folder at
/// `path`. Of a run folder they are its newest, or those with which the run in `folder` has begun:
/// meanwhile the other run may have written further ones.
///
/// # Errors
///
/// The run folder has no checkpoint.
pub fn initial_weights(path: PathBuf, folder: Option<&RunFolder>) -> Result<PathBuf, WeightsError> {
    let run = RunFolder::at(path);
    if !run.is_run() {
        return Ok(run.path().into());
    }
    let begun = folder.and_then(|folder| folder.config().ok()?.init);
    match begun.filter(|weights| weights.starts_with(run.path())) {
        Some(weights) => Ok(weights),
        None => checkpoint(&run, Which::Newest),
    }
}

fn of_step(run: &RunFolder, step: u64) -> Result<PathBuf, WeightsError> {
    let folder = run.checkpoints();
    let found: Vec<u64> = checkpoint::list(&folder)?.into_iter().map(|(step, _)| step).collect();
    match (found.contains(&step), found.is_empty()) {
        (true, _) => Ok(checkpoint::path(&folder, step)),
        (false, true) => Err(Error::NoCheckpoint { folder }.into()),
        (false, false) => Err(WeightsError::NoStep { folder, step, found }),
    }
}

/// Writes a new file as a whole or not at all.
fn write_new(path: &Path, data: &[u8]) -> Result<(), WeightsError> {
    write_new_with(path, |draft| fs::write(draft.path, data).map_err(|error| draft.failed(error)))
}

/// Like [`write_new`], with a function that writes the draft.
fn write_new_with<T>(
    path: &Path,
    write: impl FnOnce(&Draft<'_>) -> Result<T, WeightsError>,
) -> Result<T, WeightsError> {
    let fail = |e| WeightsError::from(Error::file(path, e));
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Like any new file, with the permissions that the umask leaves.
    let draft = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)
        .map_err(|e| fail(e.kind().into()))?;
    let written = write(&Draft { path: draft.path(), out: path })?;
    draft.as_file().sync_all().map_err(fail)?;
    match draft.persist_noclobber(path) {
        Ok(_) => kolo_durable::sync_folder(folder).map_err(fail).map(|()| written),
        Err(e) if e.error.kind() == ErrorKind::AlreadyExists => {
            Err(WeightsError::OutTaken { path: path.into() })
        }
        Err(e) => Err(fail(e.error)),
    }
}
