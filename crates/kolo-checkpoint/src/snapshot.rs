//! Snapshot of a checkpoint's contents: copies, so that training continues while they are written.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use safetensors::tensor::{Dtype, View};

use crate::error::Error;
use crate::manifest::TensorEntry;
use crate::position::Position;
use kolo_optim::finite::are_finite;
use kolo_optim::{Element, Kind, Layout, MemoryOrder, Span};

/// Kind of tensors, which gives the prefix of their files' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// Values of the model.
    Weights,
    /// State of the optimizer.
    Optimizer,
    /// State that the reduction keeps from step to step, per shard and for all shards, if it keeps any.
    Residuals,
}

/// File of a checkpoint that holds the model's values.
pub const WEIGHTS: &str = "weights.safetensors";

impl Set {
    pub(crate) fn file(self) -> &'static str {
        match self {
            Set::Weights => WEIGHTS,
            Set::Optimizer => "optimizer.safetensors",
            Set::Residuals => "residuals.safetensors",
        }
    }

    /// Returns true if a file holds tensors of this set: `optimizer.safetensors`, or
    /// `optimizer-<anything>.safetensors` for a part.
    pub(crate) fn is_in(self, name: &str) -> bool {
        let stem = self.file().trim_end_matches(".safetensors");
        let part = name.strip_prefix(stem).and_then(|rest| rest.strip_suffix(".safetensors"));
        part.is_some_and(|part| part.is_empty() || part.starts_with('-'))
    }
}

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
}

/// Checkpoint that is not written yet.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) position: Position,
    pub(crate) layout: Arc<Layout>,
    pub(crate) parts: Vec<Part>,
    /// Expected number of uses of each tensor in the next step, in the layout's order; empty if unknown.
    pub(crate) uses: Vec<u32>,
    /// Averages behind the noise scale, if the job measures it.
    pub(crate) noise_scale: Option<Vec<String>>,
    /// Other values that the replica resumes with, by name.
    pub(crate) entries: Vec<(&'static str, serde_json::Value)>,
    /// For each tensor, true if it was not finite when training began.
    pub(crate) given: Vec<bool>,
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
        for part in &parts {
            let Part { set, file, start, values, .. } = part;
            let end = start.saturating_add(values.len());
            if end > layout.len() {
                return Err(Error::PartTooLong { start: *start, end, len: layout.len() });
            }
            if !set.is_in(file) || file.contains('/') {
                return Err(Error::PartFile { file: file.clone(), whole: set.file() });
            }
        }
        let (position, uses, entries) = (position.clone(), Vec::new(), Vec::new());
        let snapshot = Snapshot { position, layout, parts, uses, noise_scale: None, entries, given };
        match snapshot.not_finite() {
            Some(tensor) => Err(Error::SnapshotNotFinite { step: snapshot.position.step, tensor }),
            None => Ok(snapshot),
        }
    }

    /// Returns the first tensor that is not finite but was when training began.
    fn not_finite(&self) -> Option<String> {
        let wrong = self.parts.iter().filter(|part| !are_finite(&part.values));
        let mut pieces = wrong.flat_map(|part| self.pieces(part));
        let wrong = pieces.find(|piece| !piece.entry.given && !are_finite(piece.values));
        wrong.map(|piece| piece.entry.key())
    }

    /// Adds the expected number of uses of each tensor in the next step, in the layout's order. They
    /// determine which contributions come late, and so the order in which they are added.
    pub fn with_uses(self, uses: Vec<u32>) -> Self {
        Snapshot { uses, ..self }
    }

    /// Adds the averages behind the gradient's noise scale, if the job measures it.
    pub fn with_noise_scale(self, noise_scale: Option<Vec<String>>) -> Self {
        Snapshot { noise_scale, ..self }
    }

    /// Adds another value that the replica resumes with, such as its loss scale. It becomes an entry of
    /// `position.json`, which [`Reader::entry`](crate::Reader::entry) returns.
    pub fn with_entry(mut self, name: &'static str, value: serde_json::Value) -> Self {
        self.entries.push((name, value));
        self
    }

    /// Returns the size of the values in bytes; the files are hardly larger.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| size_of_val(&part.values[..]) as u64).sum()
    }

    /// Returns the position of the run.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Returns the files of tensors. Weights and optimizer state have a file even if it is empty.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut files: Vec<String> = self.parts.iter().map(|part| part.file.clone()).collect();
        for set in [Set::Weights, Set::Optimizer] {
            if !files.iter().any(|file| set.is_in(file)) {
                files.push(set.file().into());
            }
        }
        files.sort();
        files.dedup();
        files
    }

    pub(crate) fn tensors(&self, file: &str) -> Vec<Piece<'_>> {
        let parts = self.parts.iter().filter(|part| part.file == file);
        parts.flat_map(|part| self.pieces(part)).collect()
    }

    fn pieces<'a>(&'a self, part: &'a Part) -> impl Iterator<Item = Piece<'a>> {
        let (first, end) = (part.start, part.start + part.values.len());
        let is_in =
            move |(_, span): &(usize, &Span)| part.set == Set::Weights || span.spec.kind != Kind::Frozen;
        self.layout.spans().iter().enumerate().filter(is_in).filter_map(move |(number, span)| {
            let from = span.offset.max(first);
            let to = (span.offset + span.len).min(end);
            // A tensor without elements belongs to the part in which it begins.
            let empty =
                span.len == 0 && span.offset >= first && (span.offset < end || end == self.layout.len());
            if from >= to && !empty {
                return None;
            }
            let spec = &span.spec;
            let name = format!("{}{}", part.prefix, spec.name);
            let values = &part.values[from - first..to - first];
            let given = part.set == Set::Weights && self.given.get(number).is_some_and(|given| *given);
            let (dtype, shape) = (spec.element.dtype().into(), spec.shape.clone());
            if to - from == span.len {
                let (elements, order) = (0..span.len / spec.element.values(), MemoryOrder::row_major());
                let entry = TensorEntry { name, dtype, shape, elements, order, given };
                let (shape, element) = (entry.shape.clone(), spec.element);
                return Some(Piece { shape, entry, span, values, element });
            }
            // A cut tensor is stored as it lies in flat memory.
            let (elements, order) = (from - span.offset..to - span.offset, spec.order.clone());
            let (dtype, shape) = (Element::F32.dtype().into(), spec.flat_shape());
            let entry = TensorEntry { name, dtype, shape, elements, order, given };
            Some(Piece { shape: vec![to - from], entry, span, values, element: Element::F32 })
        })
    }
}

/// Tensor, or a part of one, on its way into a file.
pub(crate) struct Piece<'a> {
    pub(crate) entry: TensorEntry,
    span: &'a Span,
    /// Shape in the file.
    shape: Vec<usize>,
    values: &'a [f32],
    element: Element,
}

impl View for &Piece<'_> {
    fn dtype(&self) -> Dtype {
        dtype(self.element)
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        match self.element {
            Element::F32 if self.entry.is_whole() => Cow::Owned(bytes(&self.span.to_row_major(self.values))),
            Element::F32 => Cow::Owned(bytes(self.values)),
            other => Cow::Owned(other.to_bytes(self.values)),
        }
    }

    fn data_len(&self) -> usize {
        self.values.len() / self.element.values() * self.element.bytes()
    }
}

pub(crate) fn dtype(element: Element) -> Dtype {
    match element {
        Element::F32 => Dtype::F32,
        Element::I64 => Dtype::I64,
        Element::Bool => Dtype::BOOL,
    }
}

/// Returns the values in little-endian order, as safetensors requires.
pub(crate) fn bytes(values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; size_of_val(values)];
    bytes
        .chunks_exact_mut(4)
        .zip(values)
        .for_each(|(word, value)| word.copy_from_slice(&value.to_le_bytes()));
    bytes
}

#[cfg(test)]
impl Snapshot {
    /// Creates a snapshot with two weights, both `step`.
    pub(crate) fn for_tests(step: u64) -> Self {
        use kolo_optim::ParamSpec;
        let kind = Kind::Parameter { decay: true };
        let layout = Arc::new(Layout::new(vec![ParamSpec::new("weight", vec![2], kind)]));
        let position = Position { step, epoch: 0, step_in_epoch: 0, notes: "a test".into() };
        Snapshot::new(layout, vec![Part::weights(&[step as f32; 2])], &position).unwrap()
    }
}
