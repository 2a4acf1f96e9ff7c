//! Checkpoints of a replica: collection of its state, and continuation from it. The files themselves are
//! [`kolo_checkpoint`]'s, whose items are re-exported here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kolo_checkpoint::hex;
use kolo_comm::Rank;
use kolo_optim::{Span, SpanId};
use sha2::{Digest, Sha256};

use crate::checkpoint_entries::{read_notes, with_notes};
use crate::replica::{OwnedState, Replica, order_in_files};
use kolo_reduction::state::{Holdings, StateCopy, StateKind, StateName};
use kolo_reduction::{Error, alike, ranks_of};
use kolo_sync::{JobNotes, JobState, Warning};

pub use kolo_checkpoint::{
    FORMAT, FileEntry, Found, Guard, Manifest, Outline, Part, Position, Reader, Set, Snapshot, Source,
    TensorEntry, WEIGHTS, Wanted, Writer, list, newest, of_file, path, remedy, tell, verify,
};

/// Copies all of a replica's state. Takes as long as copying the values and the optimizer's state in memory,
/// after waiting for the last step's gradients. If ranks hold different parts of the state, such as residuals
/// of their shards, all of it must be on this rank ([`Replica::gather_residuals`]).
///
/// # Errors
///
/// The last step's reduction failed (naming the rank), some of the state is on other ranks, or some of it is
/// not finite (naming the tensor).
pub fn snapshot(replica: &mut Replica, position: &Position) -> Result<Snapshot, Error> {
    replica.expect_whole()?;
    let JobState { notes, arrays } = replica.whole_state()?;
    let mut arrays = arrays.into_arrays();
    arrays.sort_by_key(|(name, _)| order_in_files(name));
    let outline = outline(replica, arrays.iter().map(|(name, _)| name), notes, position)?;
    Ok(Snapshot::of_values(outline, arrays.into_iter().map(|(_, values)| values).collect())?)
}

/// Returns the outline of a checkpoint with these arrays.
fn outline<'a>(
    replica: &Replica,
    names: impl Iterator<Item = &'a StateName>,
    notes: JobNotes,
    position: &Position,
) -> Result<Outline, Error> {
    let (layout, given) = (replica.layout().clone(), replica.core.given_not_finite().to_vec());
    with_notes(Outline::new(layout, names.map(place_in_files).collect(), position, given), notes, replica)
}

/// Writes a checkpoint by `write` where ranks hold different parts of the state
/// ([`Replica::divides_state`]). Rank 0 calls it, while all others are in [`Replica::serve_state`]: they send
/// their parts when `write` reads them ([`Outline::write`], [`Writer::write`]), so no rank needs memory for
/// the whole state, and none trains meanwhile.
///
/// # Errors
///
/// A collective failed (naming the rank), or the optimizer's state is not finite (naming the parameter, on
/// all ranks). What `write` returned is lost then.
pub fn write_divided<T>(
    replica: &mut Replica,
    position: &Position,
    write: impl FnOnce(&Outline, &mut dyn Source) -> T,
) -> Result<T, Error> {
    let arrays = &replica.ask_for_arrays()?;
    let notes = replica.mode.notes(&mut replica.core)?;
    let outline = outline(replica, arrays.names(), notes, position)?;
    let mut state = OwnedState { replica, arrays, failure: None };
    let written = write(&outline, &mut state);
    state.failure.map_or(Ok(written), Err)
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

/// Does the same as [`save`] on rank 0, for all ranks: a collective, with any division of the state. No rank
/// needs memory for state that others hold, unless it is state of shards or islands.
///
/// # Errors
///
/// Names the file that rank 0 cannot write, on all ranks. Or a collective failed (naming the rank), or some
/// of the state is not finite (naming the parameter).
pub fn save_together(folder: &Path, replica: &mut Replica, position: &Position) -> Result<PathBuf, Error> {
    let target = path(folder, position.step);
    let written = match (replica.group().rank(), replica.divides_state()) {
        (Rank(0), true) => {
            let written = write_divided(replica, position, |outline, source| outline.write(folder, source))?;
            replica.end_serving()?;
            written.map_err(Error::from)
        }
        (_, true) => {
            replica.serve_state()?;
            Ok(target)
        }
        (rank, false) => {
            replica.gather_residuals()?;
            if rank == Rank(0) { save(folder, replica, position) } else { Ok(target) }
        }
    };
    let problem = written.as_ref().err().map(|error| error.to_string());
    match replica.group().broadcast_value(problem, Rank(0))? {
        Some(problem) if written.is_ok() => {
            Err(Error::file(folder, format!("{} cannot write here: {problem}", Rank(0))))
        }
        _ => written,
    }
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
    let notes = read_notes(reader, replica)?;
    replica.mode.make_room(&replica.core, &notes);
    for set in [Set::Weights, Set::Optimizer, Set::Residuals].into_iter().filter(|_| fills) {
        if set == Set::Residuals {
            reader.expect_residuals_of(replica.core.shards_with_state())?;
        }
        match replica.traits().is_every_step() {
            true => fill_in_place(reader, replica, set)?,
            false => fill_by_copies(reader, replica, set)?,
        }
        if set == Set::Weights {
            reader.expect_no_others(&layout)?;
        }
    }
    replica.mode.set_notes(&mut replica.core, notes)
}

/// Reads what this rank has of a set to where it lies, one run after another.
fn fill_in_place(reader: &Reader, replica: &mut Replica, set: Set) -> Result<(), Error> {
    let layout = replica.layout().clone();
    let have = Holdings::of(|visit| replica.visit_state(visit));
    let have = have.filtered(|name| place_in_files(name).0 == set);
    let arrays: Vec<_> = have.0.chunk_by(|(one, _), (other, _)| one == other).collect();
    let wanted = arrays.iter().map(|array| Wanted {
        prefix: place_in_files(&array[0].0).1,
        runs: array.iter().map(|(_, run)| run.clone()).collect(),
    });
    reader.read_runs(set, &layout, &wanted.collect::<Vec<_>>(), &mut |array, place, values| {
        replica.visit_elements(&arrays[array][0].0, &place, &mut |run, own| {
            own.copy_from_slice(&values[run.start - place.start..run.end - place.start]);
        });
    })?;
    replica.mode.check_stores(&mut replica.core)
}

/// Reads copies of the arrays of a set, from which the way to synchronize takes what this rank has.
fn fill_by_copies(reader: &Reader, replica: &mut Replica, set: Set) -> Result<(), Error> {
    let layout = replica.layout().clone();
    let mut arrays = StateCopy::of(layout.len(), |visit| {
        replica.visit_state(&mut |part| {
            if place_in_files(&part.name).0 == set {
                visit(part);
            }
        });
    });
    let targets = arrays.arrays_mut().map(|(name, values)| (place_in_files(name).1, values)).collect();
    reader.read_all(set, &layout, 0, targets)?;
    arrays.fill(|visit| replica.visit_state(visit));
    Ok(())
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
