//! Checkpoints of a replica: collection of its state, and continuation from it. The files themselves are
//! [`kolo_checkpoint`]'s, whose items are re-exported here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kolo_checkpoint::hex;
use kolo_comm::Rank;
use kolo_optim::{Span, SpanId};
use sha2::{Digest, Sha256};

use crate::checkpoint_entries::{read_notes, with_notes};
use crate::replica::Replica;
use kolo_reduction::state::{StateCopy, StateKind, StateName};
use kolo_reduction::{Error, alike, ranks_of};
use kolo_sync::{JobState, Warning};

pub use kolo_checkpoint::{
    FORMAT, FileEntry, Found, Guard, Manifest, Part, Position, Reader, Set, Snapshot, TensorEntry, WEIGHTS,
    Writer, list, newest, of_file, path, remedy, tell, verify,
};

/// Copies all of a replica's state. Takes as long as copying the values and the optimizer's state in memory,
/// after waiting for the last step's gradients. If the reduction keeps residuals, those of all shards must
/// be on this rank ([`Replica::gather_residuals`]).
///
/// # Errors
///
/// The last step's reduction failed (naming the rank), residuals are on other ranks, or some of the state is
/// not finite (naming the tensor).
pub fn snapshot(replica: &mut Replica, position: &Position) -> Result<Snapshot, Error> {
    replica.expect_whole()?;
    let JobState { notes, arrays } = replica.whole_state()?;
    let mut arrays = arrays.into_arrays();
    // By shard, however they came here. The reduction's arrays for all shards are its last ones.
    arrays.sort_by_key(|(name, _)| (name.kind == StateKind::Reduction && name.shard.is_none(), name.shard));
    let part = |(name, values): (StateName, Arc<Vec<f32>>)| {
        let (set, prefix) = place_in_files(&name);
        Part::whole(set, prefix, values)
    };
    let parts = arrays.into_iter().map(part).collect();
    let given = replica.core.given_not_finite().to_vec();
    let snapshot = Snapshot::of_model(replica.layout().clone(), parts, position, given)?;
    with_notes(snapshot, notes, replica)
}

/// Returns the set of files that holds an array, and the prefix of its tensors' names.
fn place_in_files(StateName { kind, name, shard }: &StateName) -> (Set, String) {
    match (kind, shard) {
        (StateKind::Weights, _) => (Set::Weights, String::new()),
        (StateKind::Optimizer, None) => (Set::Optimizer, format!("{name}/")),
        (StateKind::Optimizer, Some(island)) => (Set::Optimizer, format!("island{island}/{name}/")),
        (StateKind::Reduction, None) => (Set::Residuals, format!("common/{name}/")),
        (StateKind::Reduction, Some(shard)) => (Set::Residuals, format!("shard{shard}/{name}/")),
    }
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

/// Reads a checkpoint into a replica of the same model and optimizer, and verifies every file. A collective:
/// every rank calls it, with a checkpoint of the same content, in the same file or another.
///
/// # Errors
///
/// All ranks get the same error. It names the rank that cannot read its checkpoint, and the file that is
/// damaged or missing or the first tensor that does not fit; or it lists each rank's checkpoint, if they
/// differ. Or a collective failed. The replica is useless then.
pub fn load(checkpoint: &Path, replica: &mut Replica) -> Result<Position, Error> {
    let opened = Reader::open(checkpoint).and_then(|reader| Ok((reader.position()?, reader)));
    let describe = |(position, reader): &(Position, Reader)| {
        // Enough of the hash to distinguish two of them; it covers those of all files.
        let hash = &reader.manifest().manifest_sha256[..16];
        format!("the one of step {} with manifest {hash}", position.step)
    };
    let own = opened.as_ref().map(describe).map_err(|error| error.to_string());
    let reported: Vec<Result<String, String>> = replica.group().all_gather_value(&own)?;
    let (position, reader) = agreed(opened.map_err(Error::from), replica)?;
    let values: Vec<String> = reported.into_iter().flatten().collect();
    if values.iter().any(|value| *value != values[0]) {
        return Err(Error::CheckpointsDiffer { values });
    }
    agreed(replica.expect_nothing_on_its_way().and_then(|()| replica.core.release_values()), replica)?;
    replica.mode.form(&mut replica.core, position.step)?;
    let filled = fill(&reader, replica);
    agreed(filled, replica)?;
    replica.resume(position.step)?;
    Ok(position)
}

/// Returns this rank's result, if every rank succeeded; else the error of the first one that did not.
fn agreed<T>(own: Result<T, Error>, replica: &Replica) -> Result<T, Error> {
    let problem = own.as_ref().err().map(|error| error.to_string());
    let problems: Vec<Option<String>> = replica.group().all_gather_value(&problem)?;
    let mut problems = problems.into_iter().enumerate();
    match problems.find_map(|(rank, problem)| Some((Rank(rank), problem?))) {
        Some((rank, problem)) if replica.group().world_size() > 1 => {
            Err(Error::CheckpointUnreadable { rank, problem })
        }
        _ => own,
    }
}

/// Reads all of a replica's state, as far as this rank has it alone or writes it for others.
fn fill(reader: &Reader, replica: &mut Replica) -> Result<(), Error> {
    replica.core.expect_whole_step()?;
    let layout = replica.layout().clone();
    let fills = replica.core.fills_state();
    for set in [Set::Weights, Set::Optimizer, Set::Residuals].into_iter().filter(|_| fills) {
        let mut arrays = StateCopy::of(layout.len(), |visit| {
            replica.visit_state(&mut |part| {
                if place_in_files(&part.name).0 == set {
                    visit(part);
                }
            });
        });
        if set == Set::Residuals {
            reader.expect_residuals_of(replica.core.shards_with_state())?;
        }
        let targets = arrays.arrays_mut().map(|(name, values)| (place_in_files(name).1, values)).collect();
        reader.read_all(set, &layout, 0, targets)?;
        if set == Set::Weights {
            reader.expect_no_others(&layout)?;
        }
        arrays.fill(|visit| replica.visit_state(visit));
    }
    let notes = read_notes(reader, replica)?;
    replica.mode.set_notes(&mut replica.core, notes)
}

/// Result of [`resume`].
#[derive(Clone, Debug, PartialEq)]
pub struct Resumed {
    /// Position of the run.
    pub position: Position,
    /// The checkpoint's folder.
    pub path: PathBuf,
    /// Newer ones that some rank has and not all can read: each with the ranks and the fault.
    pub passed_over: Vec<String>,
}

/// Reads the newest checkpoint in `folder` that every rank has and can read: if ranks have disks of their
/// own, a checkpoint on one of them may be damaged or older. A collective; `None` if no rank has any. Newer
/// ones that are passed over are in the next report's warnings, too, on rank 0.
///
/// # Errors
///
/// Some rank has checkpoints, but none is good on all of them, or the folder cannot be read: the error lists
/// the faults and their ranks. Or as [`load`].
pub fn resume(folder: &Path, replica: &mut Replica) -> Result<Option<Resumed>, Error> {
    let steps = |listed: Vec<(u64, PathBuf)>| listed.into_iter().map(|(step, _)| step).collect();
    let own: Vec<u64> = agreed(list(folder).map(steps).map_err(Error::from), replica)?;
    let all: Vec<Vec<u64>> = replica.group().all_gather_value(&own)?;
    let steps: BTreeSet<u64> = all.iter().flatten().copied().collect();
    let mut passed_over = Vec::new();
    for step in steps.iter().rev() {
        let path = path(folder, *step);
        // If a rank lacks it, no rank needs to read it.
        let problems: Vec<Option<String>> = match all.iter().all(|steps| steps.contains(step)) {
            true => replica.group().all_gather_value(&verify(&path).err().map(|error| error.to_string()))?,
            false => {
                let lacks = |steps: &Vec<u64>| !steps.contains(step);
                let missing = |steps| lacks(steps).then(|| format!("{} is not there", path.display()));
                all.iter().map(missing).collect()
            }
        };
        let faults = by_problem(&problems);
        if faults.is_empty() {
            let position = load(&path, replica)?;
            for problem in &passed_over {
                replica.warn(Warning::CheckpointPassedOver {
                    problem: String::clone(problem),
                    path: path.clone(),
                });
            }
            return Ok(Some(Resumed { position, path, passed_over }));
        }
        passed_over.extend(faults);
    }
    match passed_over.is_empty() {
        true => Ok(None),
        false => Err(Error::NoCommonCheckpoint { folder: folder.to_path_buf(), problems: passed_over }),
    }
}

/// Formats the problems of all ranks; a problem of several ranks appears once.
fn by_problem(problems: &[Option<String>]) -> Vec<String> {
    let describe = |(problem, ranks): (&Option<String>, Vec<Rank>)| match problem {
        Some(problem) if ranks.len() < problems.len() => Some(format!("{problem} (on {})", ranks_of(&ranks))),
        problem => problem.clone(),
    };
    alike(problems).into_iter().filter_map(describe).collect()
}

/// SHA-256 of all trained parameters: `f32`, little-endian, each in row-major order, in the order of their
/// names. Fails if the last step's reduction failed (naming the rank).
pub fn weights_sha256(replica: &mut Replica) -> Result<String, Error> {
    let layout = replica.layout().clone();
    let trained = |(_, span): &(usize, &Span)| span.spec.kind.is_trained();
    let mut spans: Vec<_> = layout.spans().iter().enumerate().filter(trained).collect();
    spans.sort_by(|(_, a), (_, b)| a.spec.name.cmp(&b.spec.name));
    let mut hash = Sha256::new();
    for (number, span) in spans {
        let values = span.to_row_major(replica.tensor(SpanId(number))?);
        hash.update(values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>());
    }
    Ok(hex(&hash.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_of_several_ranks_is_described_once() {
        let of = |problems: &[Option<&str>]| {
            by_problem(&problems.iter().map(|p| p.map(Into::into)).collect::<Vec<_>>())
        };
        assert_eq!(of(&[Some("a"), Some("b"), Some("a")]), ["a (on ranks 0 and 2)", "b (on rank 1)"]);
        assert_eq!(of(&[Some("a"), Some("a")]), ["a"]);
        assert_eq!(of(&[None, Some("a")]), ["a (on rank 1)"]);
    }
}
