//! What a checkpoint is going to hold: copies, so that training can go on while they are written.

use std::borrow::Cow;
use std::sync::Arc;

use safetensors::tensor::{Dtype, View};

use crate::error::Error;
use crate::manifest::TensorEntry;
use crate::position::Position;
use kolo_optim::finite::are_finite;
use kolo_optim::{Element, Kind, Layout, MemoryOrder, Span};

/// The kinds of tensors, and how the files begin that hold them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// The model's own values.
    Weights,
    /// The optimizer's state.
    Optimizer,
    /// What the reduction keeps from step to step, for each shard and for all of them; in a checkpoint of a
    /// job whose reduction keeps something.
    Residuals,
}

/// The file of a checkpoint that holds the model's own values.
pub const WEIGHTS: &str = "weights.safetensors";

impl Set {
    /// The file that holds the whole set.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Set::Weights => WEIGHTS,
            Set::Optimizer => "optimizer.safetensors",
            Set::Residuals => "residuals.safetensors",
        }
    }

    /// Whether a file holds tensors of this set: `optimizer.safetensors`, or
    /// `optimizer-<anything>.safetensors` for a part.
    pub(crate) fn is_in(self, name: &str) -> bool {
        let stem = self.file().trim_end_matches(".safetensors");
        let part = name.strip_prefix(stem).and_then(|rest| rest.strip_suffix(".safetensors"));
        part.is_some_and(|part| part.is_empty() || part.starts_with('-'))
    }
}

/// Before the names of the parameters in a state of the optimizer.
pub fn state_prefix(name: &str) -> String {
    format!("{name}/")
}

/// Before the names of the parameters in a state that the reduction keeps for a shard.
pub fn shard_prefix(shard: usize, name: &str) -> String {
    format!("shard{shard}/{name}/")
}

/// Before the names of the parameters in a state that the reduction keeps once for all shards.
pub fn common_prefix(name: &str) -> String {
    format!("common/{name}/")
}

/// A run of flat memory that goes into one file.
///
/// A rank that holds the optimizer's state of the elements 1000 to 1999 only has a part of each state with
/// `start: 1000` and 1000 values, in the file `optimizer-<rank>.safetensors`. A tensor that such a part cuts
/// is stored as far as it is in the part, as it lies in flat memory, under the name
/// `<tensor>[<first>..<end>]`; the manifest says which elements those are.
#[derive(Clone, Debug)]
pub struct Part {
    /// What it is of.
    pub set: Set,
    /// The file that it goes into, together with other parts of the same set.
    pub file: String,
    /// Before the names of the parameters: `<state>/` for optimizer state, `shard<number>/<state>/` for what
    /// the reduction keeps for a shard, `common/<state>/` for what it keeps once for all.
    pub prefix: String,
    /// The first element of flat memory.
    pub start: usize,
    /// One value for each element from there on.
    pub values: Vec<f32>,
}

impl Part {
    /// All of the model's values.
    pub fn weights(values: &[f32]) -> Self {
        Self::whole(Set::Weights, String::new(), values.to_vec())
    }

    /// All of one state of the optimizer.
    pub fn state(name: &str, values: &[f32]) -> Self {
        Self::whole(Set::Optimizer, state_prefix(name), values.to_vec())
    }

    /// All of one state that the reduction keeps for a shard.
    pub fn of_shard(shard: usize, name: &str, values: &[f32]) -> Self {
        Self::whole(Set::Residuals, shard_prefix(shard, name), values.to_vec())
    }

    /// All of one state that the reduction keeps once for all shards.
    pub fn of_reduction(name: &str, values: &[f32]) -> Self {
        Self::whole(Set::Residuals, common_prefix(name), values.to_vec())
    }

    fn whole(set: Set, prefix: String, values: Vec<f32>) -> Self {
        Part { set, file: set.file().into(), prefix, start: 0, values }
    }
}

/// A checkpoint that is not written yet.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) position: Position,
    pub(crate) layout: Arc<Layout>,
    pub(crate) parts: Vec<Part>,
    /// How often the next step is expected to use each tensor, in the order of the layout; empty if that is
    /// not known.
    pub(crate) uses: Vec<u32>,
    /// What the noise scale is made of, where the job measures it.
    pub(crate) noise_scale: Option<Vec<String>>,
    /// What else the replica goes on with, by name.
    pub(crate) entries: Vec<(&'static str, serde_json::Value)>,
    /// For each tensor whether it was not finite when training began.
    pub(crate) given: Vec<bool>,
}

impl Snapshot {
    /// A checkpoint made of these parts, which together hold every element of every set once.
    ///
    /// # Errors
    ///
    /// A part reaches beyond the layout, goes into a file that is not named after its set, or holds a value
    /// that is not finite (naming the tensor).
    pub fn new(layout: Arc<Layout>, parts: Vec<Part>, position: &Position) -> Result<Self, Error> {
        Self::of_model(layout, parts, position, Vec::new())
    }

    /// The same of a model some of whose own tensors were not finite when training began, such as a mask of
    /// −∞ that is added: `given` says so for each of the layout's, or is empty.
    ///
    /// # Errors
    ///
    /// As [`Snapshot::new`].
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

    /// The first tensor that is not finite, though it was when training began.
    fn not_finite(&self) -> Option<String> {
        let wrong = self.parts.iter().filter(|part| !are_finite(&part.values));
        let mut pieces = wrong.flat_map(|part| self.pieces(part));
        let wrong = pieces.find(|piece| !piece.entry.given && !are_finite(piece.values));
        wrong.map(|piece| piece.entry.key())
    }

    /// With how often the next step is expected to use each tensor, in the order of the layout: which
    /// contributions come late follows from it, and so in which order they are added.
    pub fn with_uses(self, uses: Vec<u32>) -> Self {
        Snapshot { uses, ..self }
    }

    /// With the averages that the noise scale of the gradient is made of, where the job measures it.
    pub fn with_noise_scale(self, noise_scale: Option<Vec<String>>) -> Self {
        Snapshot { noise_scale, ..self }
    }

    /// With something else that the replica goes on with, such as its loss scale: an entry of
    /// `position.json`, which [`Reader::entry`](crate::Reader::entry) finds again.
    pub fn with_entry(mut self, name: &'static str, value: serde_json::Value) -> Self {
        self.entries.push((name, value));
        self
    }

    /// Bytes of the values in it; its files hold little more.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| size_of_val(&part.values[..]) as u64).sum()
    }

    /// Where the run was.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// The files of tensors. A set that has no tensors has an empty file.
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

    /// What goes into a file, tensor by tensor.
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
            // What is cut is stored as it lies in flat memory.
            let (elements, order) = (from - span.offset..to - span.offset, spec.order.clone());
            let (dtype, shape) = (Element::F32.dtype().into(), spec.flat_shape());
            let entry = TensorEntry { name, dtype, shape, elements, order, given };
            Some(Piece { shape: vec![to - from], entry, span, values, element: Element::F32 })
        })
    }
}

/// A tensor, or a part of one, on its way into a file.
pub(crate) struct Piece<'a> {
    pub(crate) entry: TensorEntry,
    span: &'a Span,
    /// As stored.
    shape: Vec<usize>,
    /// As in flat memory.
    values: &'a [f32],
    /// As which they are stored.
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

/// What safetensors calls elements of a type.
pub(crate) fn dtype(element: Element) -> Dtype {
    match element {
        Element::F32 => Dtype::F32,
        Element::I64 => Dtype::I64,
        Element::Bool => Dtype::BOOL,
    }
}

/// Little-endian, as safetensors has it.
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
    /// Two weights, both `step`.
    pub(crate) fn for_tests(step: u64) -> Self {
        use kolo_optim::ParamSpec;
        let kind = Kind::Parameter { decay: true };
        let layout = Arc::new(Layout::new(vec![ParamSpec::new("weight", vec![2], kind)]));
        let position = Position { step, epoch: 0, step_in_epoch: 0, notes: "a test".into() };
        Snapshot::new(layout, vec![Part::weights(&[step as f32; 2])], &position).unwrap()
    }
}
