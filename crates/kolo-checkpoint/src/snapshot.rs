//! Snapshot of a checkpoint's contents: copies, so that training continues while they are written.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::error::Error;
use crate::outline::{Outline, PartPlace, Piece};
use crate::position::Position;
use crate::set::Set;
use crate::source::Source;
use kolo_optim::Layout;
use kolo_optim::finite::are_finite;

/// Run of flat memory that goes into one file.
///
/// A rank that holds only the optimizer state of elements 1000 to 1999 has a part of each state with `start:
/// 1000` and 1000 values, in the file `optimizer-<rank>.safetensors`. If a part cuts a tensor, the file
/// stores the tensor's elements in the part as they lie in flat memory, under the name
/// `<tensor>[<first>..<end>]`; the manifest lists their range.
#[derive(Clone)]
pub struct Part {
    /// Set of the values.
    pub set: Set,
    /// File that holds it, together with other parts of the same set.
    pub file: String,
    /// Prefix of the parameter names: `<state>/` for optimizer state, `shard<number>/<state>/` for the
    /// reduction's state of a shard, `common/<state>/` for its state of all shards.
    pub prefix: String,
    /// First element in flat memory.
    pub start: usize,
    /// Values of the elements from `start` on.
    pub values: Arc<Vec<f32>>,
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part")
            .field("set", &self.set)
            .field("file", &self.file)
            .field("prefix", &self.prefix)
            .field("start", &self.start)
            .field("values", &self.values.len())
            .finish()
    }
}

impl Part {
    /// Creates a part with all values of the model.
    pub fn weights(values: &[f32]) -> Self {
        Self::whole(Set::Weights, String::new(), values.to_vec())
    }

    /// Creates a part with all of one array, whose tensors' names begin with `prefix`.
    pub fn whole(set: Set, prefix: String, values: impl Into<Arc<Vec<f32>>>) -> Self {
        Part { set, file: set.file().into(), prefix, start: 0, values: values.into() }
    }

    fn place(&self) -> PartPlace {
        let Part { set, file, prefix, start, values } = self;
        let run = *start..start.saturating_add(values.len());
        PartPlace { set: *set, file: file.clone(), prefix: prefix.clone(), run }
    }
}

/// Checkpoint that is not written yet, with copies of its values.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) outline: Outline,
    /// Values of each part of the outline.
    pub(crate) values: Vec<Arc<Vec<f32>>>,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("outline", &self.outline).finish_non_exhaustive()
    }
}

impl Snapshot {
    /// Creates a checkpoint of these parts, which together hold every element of every set once.
    ///
    /// # Errors
    ///
    /// Returns an error if a part reaches beyond the layout, if its file is not named after its set, or if it
    /// holds a value that is not finite (with the tensor's name).
    pub fn new(layout: Arc<Layout>, parts: Vec<Part>, position: &Position) -> Result<Self, Error> {
        Self::of_model(layout, parts, position, Vec::new())
    }

    /// Same as [`Snapshot::new`], for a model with tensors that were not finite when training began, such as
    /// an additive mask of −∞. `given` is true for each such tensor of the layout, or is empty. Fails as
    /// [`Snapshot::new`] does.
    pub fn of_model(
        layout: Arc<Layout>,
        parts: Vec<Part>,
        position: &Position,
        given: Vec<bool>,
    ) -> Result<Self, Error> {
        let places = parts.iter().map(Part::place).collect();
        let outline = Outline::of_parts(layout, places, position, given)?;
        Self::of_values(outline, parts.into_iter().map(|part| part.values).collect())
    }

    /// Creates a checkpoint of an outline and the values of its parts.
    ///
    /// # Errors
    ///
    /// Returns an error if some value is not finite (with the tensor's name).
    pub fn of_values(outline: Outline, values: Vec<Arc<Vec<f32>>>) -> Result<Self, Error> {
        let snapshot = Snapshot { outline, values };
        match snapshot.not_finite() {
            Some(tensor) => Err(Error::SnapshotNotFinite { step: snapshot.outline.position.step, tensor }),
            None => Ok(snapshot),
        }
    }

    /// Returns the first tensor that is not finite but was when training began.
    fn not_finite(&self) -> Option<String> {
        let wrong = (0..self.values.len()).filter(|part| !are_finite(&self.values[*part]));
        let mut pieces = wrong.flat_map(|part| self.outline.pieces(part));
        let is_wrong =
            |piece: &Piece<'_>| !piece.entry.given && !are_finite(self.run(piece.part, piece.place.clone()));
        pieces.find(is_wrong).map(|piece| piece.entry.key())
    }

    /// Returns the size of the values in bytes; the files are hardly larger.
    pub fn bytes(&self) -> u64 {
        self.values.iter().map(|values| size_of_val(&values[..]) as u64).sum()
    }

    /// Returns the position of the run.
    pub fn position(&self) -> &Position {
        &self.outline.position
    }

    /// Returns elements of flat memory of a part.
    pub(crate) fn run(&self, part: usize, place: Range<usize>) -> &[f32] {
        let start = self.outline.parts[part].run.start;
        &self.values[part][place.start - start..place.end - start]
    }
}

impl Source for &Snapshot {
    fn read(&mut self, part: usize, place: Range<usize>) -> Result<Cow<'_, [f32]>, Error> {
        Ok(Cow::Borrowed(self.run(part, place)))
    }
}

#[cfg(test)]
impl Snapshot {
    /// Creates a snapshot with two weights, both `step`.
    pub(crate) fn for_tests(step: u64) -> Self {
        use kolo_optim::{Kind, ParamSpec};
        let kind = Kind::Parameter { decay: true };
        let layout = Arc::new(Layout::new(vec![ParamSpec::new("weight", vec![2], kind)]));
        let position = Position { step, epoch: 0, step_in_epoch: 0, notes: "a test".into() };
        Snapshot::new(layout, vec![Part::weights(&[step as f32; 2])], &position).unwrap()
    }
}
