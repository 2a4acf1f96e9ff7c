//! Checkpoints of a replica: what of it is saved, and how it goes on from there. The files themselves are
//! [`kolo_checkpoint`]'s, whose items are here, too.

use std::path::{Path, PathBuf};

use kolo_checkpoint::{hex, residual_prefix, state_prefix};
use kolo_optim::{Kind, Span};
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::replica::Replica;

pub use kolo_checkpoint::{
    FORMAT, FileEntry, Found, Manifest, Part, Position, Reader, Set, Snapshot, TensorEntry, Writer, list,
    newest, path, verify,
};

/// A copy of all that a replica holds. Takes as long as copying the values and the optimizer's state in
/// memory, after waiting for the last step's gradients. Where the reduction keeps residuals, those of all
/// shards have to be here ([`Replica::gather_residuals`]).
///
/// # Errors
///
/// The last step's reduction failed (naming the rank), or residuals are elsewhere.
pub fn snapshot(replica: &mut Replica, position: &Position) -> Result<Snapshot, Error> {
    let layout = replica.layout().clone();
    let residuals = replica.all_residuals()?;
    let (_, values, optimizer) = replica.parts()?;
    let mut parts = vec![Part::weights(values)];
    parts.extend(optimizer.state().into_iter().map(|(name, values)| Part::state(name, values)));
    parts.extend(residuals.into_iter().enumerate().map(|(shard, values)| Part::residual(shard, values)));
    Ok(Snapshot::new(layout, parts, position)?.with_uses(replica.expected_uses().to_vec()))
}

/// Writes a checkpoint to `folder/step-<step>` and returns that path when it is durable. All replicas are
/// equal, so one rank does it. [`Writer`] does the same without waiting.
///
/// # Errors
///
/// Names the file that cannot be written, or the rank whose failure ended the last step's reduction.
pub fn save(folder: &Path, replica: &mut Replica, position: &Position) -> Result<PathBuf, Error> {
    Ok(snapshot(replica, position)?.write(folder)?)
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
        reader.read(Set::Optimizer, &state_prefix(name), layout, 0, values)?;
    }
    reader.expect_residuals_of(replica.shards_with_residuals())?;
    if replica.shards_with_residuals() > 0 {
        let layout = replica.layout().clone();
        let read = |shard| {
            let mut values = vec![0.0; layout.len()];
            reader.read(Set::Residuals, &residual_prefix(shard), &layout, 0, &mut values)?;
            Ok(values)
        };
        let residuals = replica.shards().map(read).collect::<Result<Vec<_>, Error>>()?;
        replica.set_residuals(&residuals);
    }
    // One that is older than this entry says nothing: then one use each, as in a job that begins.
    let spans = replica.layout().spans().len();
    let uses = reader.uses()?.filter(|uses| uses.len() == spans);
    replica.expect_uses(uses.unwrap_or_else(|| vec![1; spans]));
    replica.resume(position.step);
    Ok(position)
}

/// SHA-256 of all trained parameters: `f32`, little-endian, each in row-major order, in the order of their
/// names.
///
/// # Errors
///
/// The last step's reduction failed (naming the rank).
pub fn weights_sha256(replica: &mut Replica) -> Result<String, Error> {
    let layout = replica.layout().clone();
    let values = replica.values()?;
    let trained = |span: &&Span| span.spec.kind != Kind::Statistic;
    let mut spans: Vec<_> = layout.spans().iter().filter(trained).collect();
    spans.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
    let mut hash = Sha256::new();
    for span in spans {
        let values = span.to_row_major(&values[span.range()]);
        hash.update(values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>());
    }
    Ok(hex(&hash.finalize()))
}
