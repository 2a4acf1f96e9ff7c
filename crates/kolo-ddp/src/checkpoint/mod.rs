//! Checkpoints: a folder with files that others can open, in which nothing depends on the number of workers.
//!
//! `weights.safetensors` holds the model under its parameters' own names, `optimizer.safetensors` the
//! optimizer's state as `<state>/<parameter>`, `residuals.safetensors` what the reduction keeps for each
//! shard as `shard<number>/<parameter>` (where it keeps something), `position.json` where the run was, and
//! `manifest.json` the length and SHA-256 of each, so that damage is found and named. A checkpoint is written
//! under a temporary name, synced and renamed: it is there whole or not at all. [`Writer`] does that on a
//! thread of its own while training goes on; [`newest`] finds the last good one.
//!
//! The manifest says which elements of which tensor a file holds, and reading asks for a range of flat
//! memory. So ranks that each hold a part of the optimizer's state can write it as files of their own, and
//! any other number of ranks can read it: see [`Part`].

mod background;
mod folder;
mod manifest;
mod read;
mod snapshot;
mod write;
mod writer;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::layout::Kind;
use crate::replica::Replica;

pub use folder::{Found, list, newest, path, verify};
pub use manifest::{FORMAT, FileEntry, Manifest, TensorEntry};
pub use read::Reader;
pub use snapshot::{Part, Set, Snapshot};
pub use writer::Writer;

const POSITION: &str = "position.json";
/// What `position.json` has besides a [`Position`]: how often the next step is expected to use each tensor.
/// Which contributions come late follows from it, and so in which order they are added.
const USES: &str = "uses";

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

/// Writes a checkpoint to `folder/step-<step>` and returns that path when it is durable. All replicas are
/// equal, so one rank does it. [`Writer`] does the same without waiting.
///
/// # Errors
///
/// Names the file that cannot be written, or the rank whose failure ended the last step's reduction.
pub fn save(folder: &Path, replica: &mut Replica, position: &Position) -> Result<PathBuf, Error> {
    std::fs::create_dir_all(folder).map_err(|e| Error::file(folder, e))?;
    write::write(folder, &Snapshot::of(replica, position)?)
}

/// Reads a checkpoint into a replica of the same model and optimizer, and verifies every file. Every rank
/// does it.
///
/// # Errors
///
/// Names the file that is damaged or missing, or the first tensor that does not fit; the replica is of no use
/// then.
pub fn load(checkpoint: &Path, replica: &mut Replica) -> Result<Position, Error> {
    let reader = Reader::open(checkpoint)?;
    let position = reader.position()?;
    let (layout, values, optimizer) = replica.parts()?;
    reader.read(Set::Weights, "", layout, 0, values)?;
    reader.expect_no_others(layout)?;
    for (name, values) in optimizer.state() {
        reader.read(Set::Optimizer, &format!("{name}/"), layout, 0, values)?;
    }
    reader.expect_residuals_of(replica.shards_with_residuals())?;
    if replica.shards_with_residuals() > 0 {
        let layout = replica.layout().clone();
        let read = |shard| {
            let mut values = vec![0.0; layout.len()];
            reader.read(Set::Residuals, &snapshot::residual_prefix(shard), &layout, 0, &mut values)?;
            Ok(values)
        };
        let residuals = replica.shards().map(read).collect::<Result<Vec<_>, Error>>()?;
        replica.set_residuals(&residuals);
    }
    if let Some(uses) = reader.uses()?.filter(|uses| uses.len() == replica.layout().spans().len()) {
        replica.expect_uses(uses);
    }
    replica.resume(position.step);
    Ok(position)
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
        hash.update(snapshot::bytes(&values[span.range()]));
    }
    Ok(hex(&hash.finalize()))
}

/// A hash as it is written: two lower-case digits a byte.
fn hex(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
