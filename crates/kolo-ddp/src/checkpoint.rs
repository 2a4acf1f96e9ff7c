//! Checkpoints: a folder with files that others can open.
//!
//! `weights.safetensors` holds the model under its parameters' own names, `optimizer.safetensors` the optimizer's state as
//! `<state>/<parameter>`, `position.json` where the run was. Nothing in them depends on the number of workers. A
//! checkpoint is written under a temporary name, synced and renamed: it is there whole or not at all.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::layout::{Kind, Layout};
use crate::replica::Replica;

const WEIGHTS: &str = "weights.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const POSITION: &str = "position.json";

/// Where a run was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// Steps done.
    pub step: u64,
    /// Epochs done.
    pub epoch: usize,
    /// Steps done in the epoch that has begun.
    pub step_in_epoch: usize,
    /// Anything else the program wants to find again.
    pub notes: serde_json::Value,
}

/// Writes a checkpoint to `folder/step-<step>` and returns that path. All replicas are equal, so one rank does it.
///
/// # Errors
///
/// Names the file that cannot be written.
pub fn save(folder: &Path, replica: &mut Replica, position: &Position) -> Result<PathBuf, Error> {
    let target = folder.join(format!("step-{:08}", position.step));
    let draft = folder.join(format!(".step-{:08}.part", position.step));
    // Left over from a run that was killed while it wrote.
    let _ = fs::remove_dir_all(&draft);
    fs::create_dir_all(&draft).map_err(|e| Error::file(&draft, e))?;

    let (layout, values, optimizer) = replica.parts()?;
    write(&draft.join(WEIGHTS), &tensors(layout, &[("", values)])?)?;
    let state = optimizer.state();
    let state: Vec<(String, &[f32])> = state.into_iter().map(|(name, v)| (format!("{name}/"), &*v)).collect();
    let state: Vec<(&str, &[f32])> = state.iter().map(|(name, values)| (name.as_str(), *values)).collect();
    write(&draft.join(OPTIMIZER), &tensors(layout, &state)?)?;
    let text = serde_json::to_vec_pretty(position).map_err(|e| Error::file(draft.join(POSITION), e))?;
    write(&draft.join(POSITION), &text)?;

    sync(&draft)?;
    if target.exists() {
        fs::remove_dir_all(&target).map_err(|e| Error::file(&target, e))?;
    }
    fs::rename(&draft, &target).map_err(|e| Error::file(&target, e))?;
    sync(folder)?;
    Ok(target)
}

/// The newest checkpoint in a folder, if there is one.
pub fn newest(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let newest = names.filter(|name| name.starts_with("step-")).max()?;
    Some(folder.join(newest))
}

/// Reads a checkpoint into a replica of the same model and optimizer. Every rank does it.
///
/// # Errors
///
/// Names the file and the first tensor that does not fit.
pub fn load(checkpoint: &Path, replica: &mut Replica) -> Result<Position, Error> {
    let position = position(checkpoint)?;
    let (layout, values, optimizer) = replica.parts()?;
    read(&checkpoint.join(WEIGHTS), layout, "", values)?;
    for (name, values) in optimizer.state() {
        read(&checkpoint.join(OPTIMIZER), layout, &format!("{name}/"), values)?;
    }
    replica.resume(position.step);
    Ok(position)
}

/// Where the run of a checkpoint was.
///
/// # Errors
///
/// Names the file that cannot be read.
pub fn position(checkpoint: &Path) -> Result<Position, Error> {
    let path = checkpoint.join(POSITION);
    let text = fs::read(&path).map_err(|e| Error::file(&path, e))?;
    serde_json::from_slice(&text).map_err(|e| Error::file(&path, e))
}

/// SHA-256 of all trained parameters: `f32`, little-endian, in the order of their names.
///
/// # Errors
///
/// The last step's reduction failed (naming the rank).
pub fn weights_sha256(replica: &mut Replica) -> Result<String, Error> {
    let layout = replica.layout().clone();
    let values = replica.values()?;
    let trained = |span: &&crate::Span| span.spec.kind != Kind::Statistic;
    let mut spans: Vec<_> = layout.spans().iter().filter(trained).collect();
    spans.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
    let mut hash = Sha256::new();
    for span in spans {
        hash.update(bytes(&values[span.range()]));
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A safetensors file with every span of each set of values, named `prefix + span`.
fn tensors(layout: &Layout, sets: &[(&str, &[f32])]) -> Result<Vec<u8>, Error> {
    let fail =
        |e: safetensors::SafeTensorError| Error::Setting(format!("cannot write the model's tensors: {e}"));
    let mut data: BTreeMap<String, (Vec<usize>, Vec<u8>)> = BTreeMap::new();
    for (prefix, values) in sets {
        for span in layout.spans() {
            let name = format!("{prefix}{}", span.spec.name);
            data.insert(name, (span.spec.shape.clone(), bytes(&values[span.range()])));
        }
    }
    let views = data
        .iter()
        .map(|(name, (shape, data))| Ok((name, TensorView::new(Dtype::F32, shape.clone(), data)?)))
        .collect::<Result<Vec<_>, _>>()
        .map_err(fail)?;
    serialize(views, None).map_err(fail)
}

fn write(path: &Path, data: &[u8]) -> Result<(), Error> {
    let result = File::create(path).and_then(|mut file| {
        file.write_all(data)?;
        file.sync_all()
    });
    result.map_err(|e| Error::file(path, e))
}

/// Makes the names in a folder durable.
fn sync(folder: &Path) -> Result<(), Error> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|e| Error::file(folder, e))
}

fn read(path: &Path, layout: &Layout, prefix: &str, values: &mut [f32]) -> Result<(), Error> {
    let fail = |problem: String| Error::file(path, problem);
    let file = fs::read(path).map_err(|e| fail(e.to_string()))?;
    let tensors =
        SafeTensors::deserialize(&file).map_err(|e| fail(format!("is no safetensors file: {e}")))?;
    let another = "this checkpoint belongs to another model or optimizer";
    for span in layout.spans() {
        let name = format!("{prefix}{}", span.spec.name);
        let tensor = tensors.tensor(&name).map_err(|_| fail(format!("has no tensor `{name}`; {another}")))?;
        if tensor.shape() != span.spec.shape || tensor.dtype() != Dtype::F32 {
            let (found, shape) = (format!("{:?} {:?}", tensor.dtype(), tensor.shape()), &span.spec.shape);
            return Err(fail(format!("holds `{name}` as {found} where F32 {shape:?} is needed; {another}")));
        }
        let words = tensor.data().chunks_exact(4);
        for (value, word) in values[span.range()].iter_mut().zip(words) {
            *value = f32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        }
    }
    if prefix.is_empty() && tensors.len() != layout.spans().len() {
        let (found, needed) = (tensors.len(), layout.spans().len());
        return Err(fail(format!("holds {found} tensors where the model has {needed}; {another}")));
    }
    Ok(())
}
